package config

import (
	"strings"
	"testing"
)

func TestValuesOfAServerThatTheProgramMadeSayWhatItSet(t *testing.T) {
	c := Server{Data: t.TempDir(), Listen: "127.0.0.1:9999", Redis: Redis{URL: Inline("redis://rlc:hunter2@redis.example.com")}}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	all := c.Values()
	if len(all) != len(Keys()) {
		t.Errorf("%d values of %d keys", len(all), len(Keys()))
	}
	for _, v := range all {
		want := "default"
		switch v.Key {
		case "data", "listen", "redis.url":
			want = "program"
		}
		if v.Source != want || v.From() != want {
			t.Errorf("%s is from %s (%s), want %s", v.Key, v.Source, v.From(), want)
		}
		if strings.Contains(v.Value, "hunter2") {
			t.Errorf("%s shows a secret: %s", v.Key, v.Value)
		}
	}
}

func TestWhereAValueIsFromInAWord(t *testing.T) {
	for source, want := range map[string]string{
		"default": "default", "program": "program", "/etc/rlc/rlc.yaml:4:8": "file", "RLC_odd.yaml:4:8": "file", "--odd.yaml:1:1": "file",
		"RLC_PROMETHEUS_URL": "environment", "RLC_TOKEN_FILE": "environment", "--prometheus-url": "flag",
	} {
		if got := (Value{Source: source}).From(); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
