package quotafile_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/quotafile"
)

const goodPolicy = "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: a\nbuckets: [{name: b}]\n"

// tree writes files below a new folder; "-> target" makes a symlink.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(data, "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(data), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func readDir(t *testing.T, dir string) (rlc.Files, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return quotafile.ReadDir(root)
}

func TestReadDirReadsTheFilesOfTheFormat(t *testing.T) {
	files, err := readDir(t, tree(t, map[string]string{
		"defaults.yaml": "d", "profiles/p.yaml": "p", "profiles/p.yml": "x", "profiles/deep/p.yaml": "x", "contracts/c.yaml": "c",
		"services/a/policy.yaml": "a", "services/a/quotas.yaml": "q", "services/a/notes.md": "x", "services/README.md": "x", "README.md": "x", ".git/config": "x",
		"services/.hidden/policy.yaml": "x",
	}))
	want := rlc.Files{"defaults.yaml": []byte("d"), "profiles/p.yaml": []byte("p"), "contracts/c.yaml": []byte("c"), "services/a/policy.yaml": []byte("a"), "services/a/quotas.yaml": []byte("q")}
	if err != nil || !reflect.DeepEqual(files, want) {
		t.Errorf("%v %v", files, err)
	}
	if files, err := readDir(t, t.TempDir()); err != nil || len(files) != 0 {
		t.Errorf("an empty folder: %v %v", files, err)
	}
}

// A ConfigMap mount: ..data points to the newest folder, the files point into
// ..data. A git-sync mount: the whole checkout is behind a link.
func TestRelativeSymlinksInsideAreFollowed(t *testing.T) {
	files, err := readDir(t, tree(t, map[string]string{
		"..2026_11_29/defaults.yaml": "d", "..data": "-> ..2026_11_29", "defaults.yaml": "-> ..data/defaults.yaml",
		"rev/services/a/policy.yaml": "a", "services": "-> rev/services", "rev/b/policy.yaml": "b", "rev/services/b": "-> ../b",
	}))
	want := []string{"defaults.yaml", "services/a/policy.yaml", "services/b/policy.yaml"}
	if got := slices.Sorted(maps.Keys(files)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
}

func TestWhatLeavesTheFolderIsRefused(t *testing.T) {
	outside := tree(t, map[string]string{"policy.yaml": goodPolicy, "defaults.yaml": "x"})
	for name, files := range map[string]map[string]string{
		"absolute file":   {"defaults.yaml": "-> " + outside + "/defaults.yaml"},
		"relative file":   {"defaults.yaml": "-> ../" + filepath.Base(outside) + "/defaults.yaml"},
		"absolute folder": {"services/a": "-> " + outside},
		"whole services":  {"services": "-> " + filepath.Dir(outside)},
		"nowhere":         {"services/a/policy.yaml": "-> gone.yaml"},
		"loop":            {"services/a/policy.yaml": "-> policy.yaml"},
	} {
		if got, err := readDir(t, tree(t, files)); err == nil {
			t.Errorf("%s: read %v", name, slices.Collect(maps.Keys(got)))
		}
	}
}

func TestAFileThatIsNoRegularOneIsRefused(t *testing.T) {
	dir := tree(t, map[string]string{"services/a/quotas.yaml/x": "x"})
	if _, err := readDir(t, dir); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("a folder: %v", err)
	}
	dir = t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "defaults.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readDir(t, dir); !errors.Is(err, rlc.ErrInvalid) { // and does not block
		t.Errorf("a pipe: %v", err)
	}
}

func TestAFileOverItsLimitIsRefusedByNameNotCutShort(t *testing.T) {
	for name, size := range map[string]int{"services/a/policy.yaml": quotafile.MaxFile, "services/a/quotas.yaml": quotafile.MaxQuotasFile} {
		files, err := readDir(t, tree(t, map[string]string{name: goodPolicy + "#" + strings.Repeat("x", size)}))
		if err != nil || len(files[name]) != size+1 {
			t.Fatalf("%s: %d bytes, %v", name, len(files[name]), err)
		}
		if c := quotafile.Parse(files, nil); len(c.Services) != 0 || !strings.Contains(c.Problems[0].Message, "larger than") {
			t.Errorf("%s: %v", name, lines(c.Problems))
		}
	}
}

func TestValidateTakesARepositoryAFolderOrAFile(t *testing.T) {
	bad := strings.Replace(goodPolicy, "name: b", "nam: b", 1)
	dir := tree(t, map[string]string{
		"repo/defaults.yaml":            "apiVersion: rlc/v1\nkind: Defaults\nprofile: own\n",
		"repo/profiles/own.yaml":        "apiVersion: rlc/v1\nkind: Profile\nname: own\nattributes: {caller: {metric: app}}\nunknown: {caller: [nobody]}\nhistory: {sources: ['x{s=\"${service}\"}']}\n",
		"repo/profiles/off.yaml":        "apiVersion: rlc/v1\nkind: Profile\nname: other\nattributes: {caller: {metric: app}}\nhistory: {sources: ['x{s=\"${service}\"}']}\n",
		"repo/services/a/policy.yaml":   strings.Replace(goodPolicy, "name: b", "name: b, match: {caller: nobody}", 1),
		"repo/services/a/quotas.yaml":   strings.Replace(quotasHead, "service: s", "service: a", 1) + "  - {bucket: gone, rate: 1, burst: 1}\n",
		"repo/services/c/policy.yaml":   bad,
		"loose/policy.yaml":             strings.Replace(goodPolicy, "service: a", "service: Some Where", 1),
		"loose/quotas.yaml":             quotasHead + "  - {bucket: b, rate: -1, burst: 1}\n",
		"loose/my-policy.yaml":          strings.Replace(bad, "buckets", "profile: unheard-of\nbuckets", 1),
		"loose/some-contract.yaml":      acme,
		"loose/text.txt":                goodPolicy,
		"loose/only-quotas/quotas.yaml": quotasHead + "  - {bucket: b, rate: 1, burst: 1}\n",
		"none/x":                        "x",
	})
	t.Chdir(dir)
	never := `warning: bucket "b": caller never matches "nobody", which profile own counts as absent; write absent for requests without identity`
	gone := `warning: quota for bucket "gone", which policy.yaml does not have; nothing uses it; the next proposal removes it`
	for path, want := range map[string][]string{
		"repo": {
			`repo/profiles/off.yaml:3:7: name is "other", but the file is "off.yaml"`,
			"repo/services/a/policy.yaml:4:37: " + never,
			"repo/services/a/quotas.yaml:5:5: " + gone,
			`repo/services/c/policy.yaml:3:10: service "a" does not belong in folder "c"; its folder is services/a`,
			`repo/services/c/policy.yaml:4:11: bucket lacks the key name`,
			`repo/services/c/policy.yaml:4:12: unknown key "nam" in bucket; did you mean name?`,
		},
		// In its repository: the organisation's profile is used, others' problems are not told.
		"repo/services/a":             {"repo/services/a/policy.yaml:4:37: " + never, "repo/services/a/quotas.yaml:5:5: " + gone},
		"repo/services/a/policy.yaml": {"repo/services/a/policy.yaml:4:37: " + never},
		"repo/services/a/quotas.yaml": nil,
		"repo/defaults.yaml":          nil,
		"repo/profiles/off.yaml":      {`repo/profiles/off.yaml:3:7: name is "other", but the file is "off.yaml"`},
		// On its own: no folder, profile or contract to hold it against.
		"loose": {
			`loose/quotas.yaml:5:23: rate: "-1" is not a plain decimal number; write a plain decimal such as 1500 or 0.5`,
		},
		"loose/policy.yaml": nil,
		"loose/my-policy.yaml": {
			`loose/my-policy.yaml:5:11: bucket lacks the key name`,
			`loose/my-policy.yaml:5:12: unknown key "nam" in bucket; did you mean name?`,
		},
		"loose/some-contract.yaml":      nil,
		"loose/only-quotas/quotas.yaml": nil,
	} {
		problems, err := quotafile.Validate(path, nil)
		if got := lines(problems); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v\ngot\n  %s\nwant\n  %s", path, err, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
	for _, path := range []string{"none", "missing", "missing/policy.yaml"} {
		if problems, err := quotafile.Validate(path, nil); err == nil {
			t.Errorf("%s: %v", path, lines(problems))
		}
	}
}

// A checkout holds what the server's repository holds: there a link is no file.
func TestInACheckoutNothingIsFollowed(t *testing.T) {
	dir := tree(t, map[string]string{
		"services/a/policy.yaml": goodPolicy, "services/away/policy.yaml": "-> /etc/passwd", "services/near/policy.yaml": "-> ../a/policy.yaml",
		"services/round/policy.yaml": "-> policy.yaml", "services/folder": "-> a", "services/README.md": "x",
		"services/b/policy.yaml": "apiVersion: rlc/v1\nkind: ServicePolicy\nservice: b\nbuckets: [{name: b, rte: 1}]\n",
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "services/a/quotas.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	problems, err := quotafile.Validate(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"away/policy.yaml", "near/policy.yaml", "round/policy.yaml", "folder/policy.yaml", "a/quotas.yaml"} {
		if !slices.ContainsFunc(problems, func(p rlc.Problem) bool {
			return p.File == filepath.Join(dir, "services", file) && p.Line == 1 && strings.Contains(p.Message, "symbolic link")
		}) {
			t.Errorf("%s is not refused by name: %v", file, problems)
		}
	}
	if !slices.ContainsFunc(problems, func(p rlc.Problem) bool { return strings.HasSuffix(p.File, "b/policy.yaml") && p.Line == 4 }) {
		t.Errorf("the fault of another file is hidden: %v", problems)
	}
}
