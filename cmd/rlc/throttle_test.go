package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestThrottleWarnsOfANameThatNothingKnows(t *testing.T) {
	const warning = "there is no service chekout; did you mean checkout?"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("preview") == "" {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write([]byte(`{"id":"override-1","expires_at":"2026-12-02T06:34:00Z","known":false,"warning":"` + warning + `","says":"chekout sends nothing"}`))
	}))
	defer s.Close()
	for extra, says := range map[string]string{"--dry-run": "chekout sends nothing\n", "--dry-run -o=json": `"known"`, "-o=json": `"override-1"`, "--ttl=2d": "rlc lift override-1\nchekout sends nothing\n"} {
		stdout, stderr := rlcOutput(t, append([]string{"throttle", "chekout", "--block", "--ttl", "1m", "--reason", "INC-1", "--server", s.URL, "--token", "t0ken"}, strings.Fields(extra)...)...)
		if !strings.Contains(extra, "json") && strings.Contains(stdout, "{") {
			t.Errorf("%s: raw JSON: %s", extra, stdout)
		}
		if stderr != "warning: "+warning+"\n" || !strings.Contains(stdout, says) {
			t.Errorf("%s: stdout %q, stderr %q", extra, stdout, stderr)
		}
	}
}

// Enforcers that hear of no override hear of no end either.
func TestLiftWarnsAsThrottleDoes(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"override-1","warning":"an enforcer follows a folder"}`))
	}))
	defer s.Close()
	stdout, stderr := rlcOutput(t, "lift", "override-1", "--server", s.URL, "--token", "t0ken")
	if stdout != "override-1 ended\n" || stderr != "warning: an enforcer follows a folder\n" {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
}

func TestThrottleRefusesNumbersOutOfRange(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"--rate=NaN", "rate NaN is outside 0 to 100,000,000,000"},
		{"--rate=Inf", "rate +Inf is outside 0 to 100,000,000,000"},
		{"--rate=-Inf", "rate -Inf is outside 0 to 100,000,000,000"},
		{"--rate=-1", "rate −1 is outside 0 to 100,000,000,000"},
		{"--rate=2e11", "rate 200,000,000,000 is outside 0 to 100,000,000,000"},
		{"--rate=1 --burst=-1", "burst −1 is outside 0 to 100,000,000,000"},
		{"--drop=NaN", "--drop NaN is outside 0 to 0.999"},
		{"--drop=+Inf", "--drop +Inf is outside 0 to 0.999"},
		{"--drop=-0.1", "--drop −0.1 is outside 0 to 0.999"},
		{"--drop=2", "--drop 2 is outside 0 to 0.999"},
		{"--block=false", "--block=false does nothing; say one of --rate, --drop, --block and --lift"},
		{"--lift=false", "--lift=false does nothing; say one of --rate, --drop, --block and --lift"},
		{"--drop=0.5 --burst=9", "--burst stands beside --rate, not beside --drop"},
		{"--block --match=caller=a --match=caller=b", "caller is given twice: one request has one; write --match caller=a,b for either of two"},
		{"--block --caller=a --match=caller=b", "caller is given twice: one request has one; write --match caller=a,b for either of two"},
	} {
		command := throttleCommand()
		command.SetArgs(append([]string{"geo", "--ttl=1m", "--reason=INC-1", "--server=http://127.0.0.1:1"}, strings.Fields(c.flags)...))
		command.SilenceErrors, command.SilenceUsage = true, true
		var e exit
		if err := command.Execute(); !errors.As(err, &e) || e.code != exitInvalid || e.err.Error() != c.want {
			t.Errorf("%s: %v, want exit code %d with %q", c.flags, err, exitInvalid, c.want)
		}
	}
}

// A script's variable that is not set leaves a flag empty: then nothing is done to all
// callers or all services in place of one.
func TestAnEmptyFlagIsNotAll(t *testing.T) {
	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		w.WriteHeader(http.StatusTeapot)
	}))
	defer s.Close()
	for _, line := range []string{
		"throttle geo --block --ttl=1m --reason=INC-1 --caller=",
		"throttle geo --block --ttl=1m --reason=INC-1 --procedure=",
		"throttle geo --block --ttl=1m --reason=INC-1 --match=",
		"run --service=", "run --now=", "plan --service=", "why geo --caller=",
		"token create ci --role=owner --services=", "promote geo callers --zone=",
		"rollback geo --reason=x --to=",
	} {
		root := command()
		root.SetArgs(append(strings.Fields(line), "--server="+s.URL, "--token=t0ken"))
		err := root.ExecuteContext(t.Context())
		var e exit
		if !errors.As(err, &e) || e.code != exitInvalid || !strings.Contains(err.Error(), "is empty, which is not the same as all") {
			t.Errorf("%s: %v, want an empty flag refused", line, err)
		}
	}
	if asked {
		t.Error("the server was asked")
	}
}

// What was to be printed and could not be is no success, whichever command printed it.
func TestOutputThatDoesNotArriveIsAnError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(map[bool]string{true: `{"switches":[{"name":"all-to-shadow","on":false}]}`, false: `{"overrides":[]}`}[strings.HasSuffix(r.URL.Path, "/switches")]))
	}))
	defer s.Close()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, line := range []string{"why geo", "switch", "version"} {
		args := strings.Fields(line)
		if line != "version" {
			args = append(args, "--server", s.URL, "--token", "t0ken")
		}
		cmd := program(t.Context(), nil, args...)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = full, &said
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitError || !strings.Contains(said.String(), "no space left on device") {
			t.Errorf("%s: %v, %q, want exit code 1 and the reason", line, err, said.String())
		}
	}
}
