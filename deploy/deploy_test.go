package deploy_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUnitsAreHardened(t *testing.T) {
	for unit, start := range map[string]string{
		"rlc.service":            "/usr/local/bin/rlc serve --config /etc/rlc/rlc.yaml --data %S/rlc",
		"rlc-enforcer.service":   "/usr/local/bin/enforcer serve --config-dir /etc/rlc/config --state %S/rlc-enforcer",
		"rlc-controller.service": "/usr/local/bin/enforcer controller --state %S/rlc-controller",
		"rlc-aggregator.service": "/usr/local/bin/enforcer aggregator",
	} {
		settings := map[string]string{}
		section := ""
		lines := bufio.NewScanner(strings.NewReader(read(t, "systemd/"+unit)))
		for lines.Scan() {
			line := lines.Text()
			switch name, value, ok := strings.Cut(line, "="); {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "["):
				section = line
			case !ok:
				t.Errorf("%s: %q is no setting", unit, line)
			default:
				settings[section+name] = value
			}
		}
		if state := strings.TrimSuffix(unit, ".service"); strings.Contains(start, "%S/"+state) != (settings["[Service]StateDirectory"] == state) {
			t.Errorf("%s: state folder %q, started with %s", unit, settings["[Service]StateDirectory"], start)
		}
		for name, want := range map[string]string{
			"ExecStart": start, "DynamicUser": "yes",
			"ProtectSystem": "strict", "NoNewPrivileges": "yes", "MemoryDenyWriteExecute": "yes",
			"SystemCallFilter": "@system-service", "CapabilityBoundingSet": "", "Restart": "always",
			"RestartPreventExitStatus": "3", "TimeoutStopSec": "20s",
		} {
			if got, ok := settings["[Service]"+name]; !ok || got != want {
				t.Errorf("%s: %s=%s, want %s", unit, name, got, want)
			}
		}
		verify(t, unit)
	}
}

// verify asks systemd itself, where it is installed: is every setting one that
// it knows, and how exposed is the unit (0 to 10; here in tenths).
func verify(t *testing.T, unit string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Logf("no systemd-analyze: %s was looked at by this test only", unit)
		return
	}
	// The binary is not installed here: one that is stands in its place.
	file := filepath.Join(t.TempDir(), unit)
	text := regexp.MustCompile(`/usr/local/bin/\w+`).ReplaceAllString(read(t, "systemd/"+unit), "/bin/true")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--generators=no", file).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", unit, err, out)
	}
	if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=20", file).CombinedOutput(); err != nil {
		t.Errorf("%s is more exposed than 2.0 of 10: %v\n%s", unit, err, out)
	}
}

// Without a container engine at hand the build file is read, line by line.
func TestImagesAreAStaticBinaryInAnEmptyRoot(t *testing.T) {
	text := read(t, "Dockerfile")
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\S+)$`).FindStringSubmatch(read(t, "../go.mod"))
	if toolchain == nil || !strings.Contains(text, "FROM --platform=$BUILDPLATFORM golang:"+toolchain[1]+" AS build") {
		t.Errorf("the image is not built with go.mod's toolchain %v", toolchain)
	}
	if !strings.Contains(text, "CGO_ENABLED=0") {
		t.Error("the binaries are not static")
	}
	for _, path := range regexp.MustCompile(`\./cmd/\w+`).FindAllString(text, -1) {
		if _, err := os.Stat(filepath.Join("..", path, "main.go")); err != nil {
			t.Error(err)
		}
	}
	stages := strings.Split(text, "\nFROM ")[1:]
	finals := slices.DeleteFunc(stages[1:], func(stage string) bool { return strings.Contains(stage, " AS rlc-ci\n") }) // has git and a shell
	if len(finals) != 2 || !strings.HasPrefix(finals[1], "scratch AS rlc\n") {
		t.Fatalf("%d images; the last one is what a build without --target makes", len(finals))
	}
	for i, name := range []string{"enforcer", "rlc"} {
		lines := strings.Split(strings.TrimSpace(finals[i]), "\n")
		want := []string{
			"scratch AS " + name, "COPY --from=build /root-files/ /", "COPY --from=build /out/" + name + " /" + name,
			"USER 65532:65532", `ENTRYPOINT ["/` + name + `"]`, `CMD ["serve"]`,
		}
		for _, w := range want {
			if !slices.Contains(lines, w) {
				t.Errorf("image %s lacks %q:\n%s", name, w, finals[i])
			}
		}
		if strings.Contains(finals[i], "RUN ") {
			t.Errorf("image %s runs something in a root without a shell", name)
		}
	}
}
