package quotafile

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc"
)

// maxList bounds each of the lists below.
const maxList = 500

// objects reads a list of mappings and hands over each.
func (d *doc) objects(n *yaml.Node, what string, each func(o *object)) {
	items := d.list(n, what)
	if len(items) > maxList {
		d.refuse(items[maxList], "", "%s lists more than %d", what, maxList)
		return
	}
	for _, item := range items {
		if o := d.object(item, what); o != nil {
			each(o)
			o.done()
		}
	}
}

// events reads [{name, from, until, multiply}].
func (d *doc) events(n *yaml.Node) (all []rlc.Event) {
	d.objects(n, "events", func(o *object) {
		var e rlc.Event
		e.Name, _ = d.word(o.need("name"), "event name")
		e.From, e.Until, _ = d.span(o.need("from"), o.need("until"))
		e.Multiply, _ = d.within(o.need("multiply"), "multiply", 0.01, 1000)
		all = append(all, e)
	})
	return all
}

// freeze reads [{cron, for, allow}].
func (d *doc) freeze(n *yaml.Node) (all []rlc.Freeze) {
	d.objects(n, "freeze", func(o *object) {
		var f rlc.Freeze
		cron := o.need("cron")
		if s, ok := d.str(cron, "cron"); ok {
			switch f.Cron = s; {
			case !validCron(s):
				d.refuse(cron, `write five fields: minute hour day month weekday, as "0 0 20 12 *"`, "cron: %s is not a schedule", show(s))
			case !comes(s):
				d.refuse(cron, "write a day that its months have", "cron: %s never comes", show(s))
			}
		}
		length := o.need("for")
		var ok bool
		if f.For, ok = d.duration(length, "for"); ok && f.For > 366*24*time.Hour {
			d.refuse(length, "", "for: %s is longer than 366d", clip(length.Value))
		}
		if a := o.get("allow"); a != nil {
			if f.Allow, _ = d.choice(a, "allow", "increases", "nothing"); f.Allow == "nothing" {
				f.Allow = ""
			}
		}
		all = append(all, f)
	})
	return all
}

// validCron reports whether s is five fields of numbers, ranges, steps and
// lists within their bounds.
func validCron(s string) bool {
	fields := strings.Fields(s)
	if len(fields) != 5 || len(s) > 200 {
		return false
	}
	for i, bounds := range [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}} {
		for _, part := range strings.Split(fields[i], ",") {
			if !validCronPart(part, bounds[0], bounds[1]) {
				return false
			}
		}
	}
	return true
}

// comes reports whether a valid schedule names a day that one of its months has. A
// weekday always comes: cron takes either of the two.
func comes(cron string) bool {
	fields := strings.Fields(cron)
	if fields[4] != "*" && fields[4] != "*/1" {
		return true
	}
	for month, days := range []int{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31} {
		if cronHas(fields[3], month+1, 1, 12) && cronFirst(fields[2], 1, 31) <= days {
			return true
		}
	}
	return false
}

// cronFirst is the lowest number that a valid field names, high+1 for none.
func cronFirst(field string, low, high int) int {
	for n := low; n <= high; n++ {
		if cronHas(field, n, low, high) {
			return n
		}
	}
	return high + 1
}

// cronHas reports whether a valid field names n.
func cronHas(field string, n, low, high int) bool {
	for part := range strings.SplitSeq(field, ",") {
		span, stepped, _ := strings.Cut(part, "/")
		from, to := low, high
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			from, _ = strconv.Atoi(first)
			if to = from; ranged {
				to, _ = strconv.Atoi(last)
			} else if stepped != "" {
				to = high // 5/10 is 5-31/10
			}
		}
		step := 1
		if stepped != "" {
			step, _ = strconv.Atoi(stepped)
		}
		if n >= from && n <= to && (n-from)%step == 0 {
			return true
		}
	}
	return false
}

// validCronPart accepts *, 5, 1-5, and each with a step: */10.
func validCronPart(part string, low, high int) bool {
	number := func(s string, low, high int) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && s[0] != '+' && low <= n && n <= high
	}
	span, step, stepped := strings.Cut(part, "/")
	if _, ok := number(step, 1, high); stepped && !ok {
		return false
	}
	if span == "*" {
		return true
	}
	from, to, ranged := strings.Cut(span, "-")
	a, ok := number(from, low, high)
	if !ranged || !ok {
		return ok
	}
	b, ok := number(to, low, high)
	return ok && a <= b
}

// aliases reads [{caller, was}].
func (d *doc) aliases(n *yaml.Node) (all []rlc.Alias) {
	was := map[string]bool{}
	d.objects(n, "aliases", func(o *object) {
		var a rlc.Alias
		a.Caller, _ = d.name(o.need("caller"), "caller", MaxName)
		a.Was, _ = d.name(o.need("was"), "was", MaxName)
		switch {
		case a.Was == "":
		case a.Was == a.Caller:
			d.refuse(o.get("was"), "", "was is the caller itself")
		case was[a.Was]:
			d.refuse(o.get("was"), "remove one", "aliases name %s twice", show(a.Was))
		}
		was[a.Was] = true
		if a.Was != "" && a.Was != a.Caller && comesFrom(all, a.Was, a.Caller) {
			d.refuse(o.get("was"), "remove one", "aliases go in a circle: %s was %s already", show(a.Was), show(a.Caller))
		}
		all = append(all, a)
	})
	return all
}

// comesFrom reports whether caller was earlier once, by one alias or several.
func comesFrom(all []rlc.Alias, caller, earlier string) bool {
	names := map[string]bool{caller: true}
	for range all { // no chain is longer
		for _, a := range all {
			if names[a.Caller] {
				names[a.Was] = true
			}
		}
	}
	return names[earlier]
}

// failover reads [{lose, to: {region: share}}].
func (d *doc) failover(n *yaml.Node) (all []rlc.Failover) {
	lost := map[string]bool{}
	d.objects(n, "failover", func(o *object) {
		f := rlc.Failover{To: map[string]float64{}}
		f.Lose, _ = d.word(o.need("lose"), "lose")
		if lost[f.Lose] {
			d.refuse(o.get("lose"), "remove one", "failover names %s twice", show(f.Lose))
		}
		lost[f.Lose] = f.Lose != ""
		to := o.need("to")
		if d.object(to, "to") != nil {
			sum := 0.0
			for i := 0; i < len(to.Content); i += 2 {
				region := to.Content[i]
				if !plainSegment(strings.ToLower(region.Value)) || region.Value == f.Lose {
					d.refuse(region, "name another region", "to: %s cannot receive the traffic", show(region.Value))
				}
				share, _ := d.within(to.Content[i+1], "to "+clip(region.Value), 0, 1)
				f.To[region.Value] = share
				sum += share
			}
			if math.Abs(sum-1) > 1e-6 {
				d.refuse(to, "write shares such as {us-east-1: 0.6, us-west-2: 0.4}", "to: the shares sum to %s, not 1", decimalText(math.Round(sum*1e6)/1e6))
			}
		}
		all = append(all, f)
	})
	return all
}

// sensitive reads a list of attributes.
func (d *doc) sensitive(n *yaml.Node) []string {
	names := d.names(n, "sensitive")
	for _, item := range d.list(n, "sensitive") {
		if contains(names, item.Value) && !d.attribute(item, item.Value) {
			return nil
		}
	}
	return names
}

// targets reads [{kind, path}].
func (d *doc) targets(n *yaml.Node) (all []rlc.Target) {
	d.objects(n, "targets", func(o *object) {
		var t rlc.Target
		t.Kind, _ = d.choice(o.need("kind"), "target kind", "envoy-ratelimit")
		at := o.need("path")
		var ok bool
		if t.Path, ok = d.name(at, "path", MaxName); ok && !ownPath(t.Path) {
			d.refuse(at, "write a path such as platform/ratelimit/checkout.yaml", "path: %s is no file of the repository that people leave to rlc", show(t.Path))
		}
		all = append(all, t)
	})
	return all
}

// ownPath reports whether a rendered file may stand there: a YAML file inside
// the repository that is none of its own, under a name that every file system
// keeps as it is.
func ownPath(p string) bool {
	low := strings.ToLower(p)
	if !strings.HasSuffix(p, ".yaml") || kindOf(low) != "" || strings.HasPrefix(low, servicesDir+"/") {
		return false
	}
	for name := range strings.SplitSeq(p, "/") {
		stem, _, _ := strings.Cut(strings.ToLower(name), ".")
		if !portable(name) || slices.Contains(devices, stem) {
			return false
		}
	}
	return true
}

// devices are names that Windows keeps for itself, whatever follows their dot.
var devices = strings.Fields("con prn aux nul com1 com2 com3 com4 com5 com6 com7 com8 com9 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9")

// portable reports whether name is letters, digits, - and _ with dots inside.
func portable(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-' && i > 0, c == '.' && i > 0:
		default:
			return false
		}
	}
	return name != "" && len(name) <= 100 && !strings.HasSuffix(name, ".")
}

// autoMerge reads false, or {max_change}.
func (d *doc) autoMerge(n *yaml.Node) *rlc.AutoMerge {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" && n.Value == "false" {
		return nil
	}
	o := d.object(n, "auto_merge")
	if o == nil {
		return nil
	}
	var a rlc.AutoMerge
	a.MaxChange, _ = d.within(o.need("max_change"), "max_change", 0.001, 1)
	o.done()
	return &a
}
