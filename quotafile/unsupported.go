package quotafile

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// shape checks the form of a value that this version refuses: a typo in a key
// of tomorrow is worth the same message as in one of today.
type shape func(d *doc, n *yaml.Node, what string)

func aString(d *doc, n *yaml.Node, what string)   { d.str(n, what) }
func aNumber(d *doc, n *yaml.Node, what string)   { d.number(n, what) }
func aDuration(d *doc, n *yaml.Node, what string) { d.duration(n, what) }
func anInstant(d *doc, n *yaml.Node, what string) { d.instant(n, what) }

func listOf(item shape) shape {
	return func(d *doc, n *yaml.Node, what string) {
		for _, c := range d.list(n, what) {
			item(d, c, what)
		}
	}
}

func mapOf(value shape) shape {
	return func(d *doc, n *yaml.Node, what string) {
		if o := d.object(n, what); o != nil {
			for i := 0; i < len(n.Content); i += 2 {
				value(d, n.Content[i+1], what+" "+clip(n.Content[i].Value))
			}
		}
	}
}

// record is a mapping with these keys, required where the flag says so.
func record(keys map[string]shape, required ...string) shape {
	return func(d *doc, n *yaml.Node, what string) {
		o := d.object(n, what)
		if o == nil {
			return
		}
		for _, key := range required {
			o.need(key)
		}
		for i := 0; i < len(n.Content); i += 2 {
			if value, ok := keys[n.Content[i].Value]; ok {
				value(d, n.Content[i+1], n.Content[i].Value)
			}
		}
		o.known = append(o.known, slices.Sorted(maps.Keys(keys))...)
		o.done()
	}
}

// The keys of config.md that this version refuses.
var (
	tierShape    = mapOf(listOf(aString))
	rolloutShape = record(map[string]shape{"zones": listOf(aString)}, "zones")
	aliasesShape = listOf(record(map[string]shape{"caller": aString, "was": aString}, "caller", "was"))
	eventsShape  = listOf(record(map[string]shape{"name": aString, "from": anInstant, "until": anInstant, "multiply": aNumber}, "name", "from", "until", "multiply"))
	loseShape    = listOf(record(map[string]shape{"lose": aString, "to": mapOf(aNumber)}, "lose", "to"))
	freezeShape  = listOf(record(map[string]shape{"cron": aString, "for": aDuration, "allow": aString}, "cron", "for"))
	secretShape  = listOf(aString)
	targetsShape = listOf(record(map[string]shape{"kind": aString, "path": aString}, "kind", "path"))
	windowsShape = listOf(record(map[string]shape{"from": anInstant, "until": anInstant, "rate": aNumber, "burst": aNumber}, "from", "until", "rate", "burst"))
	hoursShape   = record(map[string]shape{"from": anInstant, "rates": listOf(aNumber)}, "from", "rates")

	headerCostShape = record(map[string]shape{"from": aString, "name": aString, "reserve": aNumber}, "from", "name")
	windowedShape   = record(map[string]shape{"requests": aNumber, "per": aString, "reset": aString, "window": aDuration, "align": aString}, "requests")
	inFlightShape   = record(map[string]shape{"concurrent": aNumber, "timeout": aDuration}, "concurrent")
	instancesShape  = record(map[string]shape{"per_instance": aNumber, "instances": aString, "reserve": aNumber, "evidence": aString}, "per_instance", "instances")
	autoMergeShape  = record(map[string]shape{"max_change": aNumber}, "max_change")
)

// costShape is a number per procedure, or where to read it from.
func costShape(d *doc, n *yaml.Node, what string) {
	if has(n, "from") {
		headerCostShape(d, n, what)
		return
	}
	mapOf(aNumber)(d, n, what)
}

// autoMerge accepts false, the only behaviour of this version.
func (d *doc) autoMerge(n *yaml.Node) {
	if n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!bool" && n.Value == "false" {
		return
	}
	before := len(d.problems)
	autoMergeShape(d, n, "auto_merge")
	if len(d.problems) == before {
		d.later(n, "auto_merge")
	}
}

// has reports whether a mapping has one of these keys.
func has(n *yaml.Node, keys ...string) bool {
	if n == nil || n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(n.Content); i += 2 {
		if contains(keys, n.Content[i].Value) {
			return true
		}
	}
	return false
}
