package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc"
)

// Key is everything there is to say about one setting.
type Key struct {
	// Name is its path in the file: prometheus.url is url within prometheus.
	// The flag is --prometheus-url, the variable RLC_PROMETHEUS_URL.
	Name string
	// Default is the value in force where nothing was given. DATA stands for
	// the data folder. "" where the part is embedded or off, as Unset says.
	Default string
	// Unset says what "" does.
	Unset string
	// Example is a value other than the default, for keys whose default is "".
	Example string
	// Means is one sentence: what the value is. Consequence is what follows
	// from changing it.
	Means, Consequence string

	field   func(*Server) any
	private bool                // it names a file that holds a secret
	check   func(*Server) error // of a completed server; nil: any value
	min     time.Duration       // of a duration
	max     time.Duration
}

// MinToken is the least length of a token, in characters.
const MinToken = 16

func oneOf(text string, all ...string) error {
	for _, a := range all {
		if text == a {
			return nil
		}
	}
	return fmt.Errorf("%q: want %s", text, strings.Join(all, ", "))
}

// Secret reports whether the key holds a secret: it may be given as a file
// (name_file in the file, RLC_NAME_FILE, --name-file), has no flag that takes
// the value itself, and is never shown.
func (k Key) Secret() bool { _, ok := k.field(&Server{}).(*Secret); return ok }

// Flag is the name of its flag, without dashes. A secret's flag takes a file:
// arguments are seen by everybody on the machine.
func (k Key) Flag() string {
	name := strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
	if k.Secret() {
		name += "-file"
	}
	return name
}

// Env is the name of its environment variable.
func (k Key) Env() string { return envName(k.Name) }

// Form says what a value looks like.
func (k Key) Form() string {
	switch k.field(&Server{}).(type) {
	case *time.Duration:
		return fmt.Sprintf("duration, %s to %s", rlc.DurationText(k.min), rlc.DurationText(k.max))
	case *int:
		return "whole number"
	case *bool:
		return "true or false"
	case *map[string]string:
		return "mapping"
	case *Secret:
		return "secret"
	}
	return "text"
}

func (k Key) isSet(c *Server) bool {
	switch f := k.field(c).(type) {
	case *string:
		return *f != ""
	case *int:
		return *f != 0
	case *bool:
		return *f
	case *map[string]string:
		return len(*f) > 0
	case *time.Duration:
		return *f != 0
	case *Secret:
		return f.IsSet()
	}
	return false
}

// complete puts the default where c has no value, and checks the bounds.
func (k Key) complete(c *Server) error {
	if !k.isSet(c) {
		if k.Default == "" {
			return nil
		}
		text := k.in(c)
		if s, ok := k.field(c).(*Secret); ok && strings.HasPrefix(k.Default, "DATA/") {
			*s = FromFile(text)
			return nil
		}
		return k.set(c, text)
	}
	if k.Name == "data" {
		return absolute(&c.Data)
	}
	if d, ok := k.field(c).(*time.Duration); ok && (*d < k.min || *d > k.max) {
		return fmt.Errorf("%s is outside %s to %s", rlc.DurationText(*d), rlc.DurationText(k.min), rlc.DurationText(k.max))
	}
	return nil
}

// in is the default with c's data folder put in.
func (k Key) in(c *Server) string { return strings.ReplaceAll(k.Default, "DATA", c.Data) }

// set reads text into the key's field of c.
func (k Key) set(c *Server, text string) error {
	if text == "" {
		return errors.New("no value: leave the key out for its default")
	}
	if len(text) > 4096 {
		return errors.New("longer than 4096 bytes")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) || strings.TrimSpace(text) != text {
		return errors.New("control characters and spaces around a value are not read")
	}
	switch f := k.field(c).(type) {
	case *string:
		*f = text
	case *Secret:
		*f = Inline(text)
	case *bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q: want true or false", text)
		}
		*f = text == "true"
	case *map[string]string:
		return parseTexts(f, text)
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text {
			return fmt.Errorf("%q: want a whole number", text)
		}
		*f = n
	case *time.Duration:
		d, err := duration(text)
		if err != nil {
			return err
		}
		if d == 0 {
			return fmt.Errorf("%q is outside %s to %s", text, rlc.DurationText(k.min), rlc.DurationText(k.max))
		}
		*f = d
	}
	if k.Name == "data" {
		return absolute(&c.Data)
	}
	return nil
}

// duration reads 90s, 2m30s, 12h, 40d or 2w.
func duration(text string) (time.Duration, error) {
	d, err := rlc.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q: want a duration with its unit, such as 30s, 15m, 12h, 40d or 2w", text)
	}
	return d, nil
}
