package enforcer

import (
	"maps"
	"slices"

	"github.com/openrlc/rlc"
)

// Descriptors says how a service's profile names attributes where a proxy
// describes a request: descriptor to attribute. Where it is "" the attribute
// of this name is found under another descriptor, and this one says nothing;
// a descriptor that is not listed is an attribute of its own name. The map is
// shared and not to be changed; nil is empty.
func (e *Enforcer) Descriptors(service string) map[string]string {
	l := e.loaded.Load()
	if l == nil || l.services[service] == nil {
		return nil
	}
	return l.services[service].descriptors
}

// descriptors is a profile's map of descriptors, nil where each is called as
// its attribute. Where two attributes name one descriptor, the first by name
// has it.
func descriptors(p *rlc.Profile) map[string]string {
	if p == nil {
		return nil
	}
	var out map[string]string
	names := slices.Sorted(maps.Keys(p.Attributes))
	elsewhere := func(name string) bool {
		d := p.Attributes[name].Descriptor
		return d != "" && d != name
	}
	for _, name := range names {
		if d := p.Attributes[name].Descriptor; elsewhere(name) && out[d] == "" {
			if out == nil {
				out = map[string]string{}
			}
			out[d] = name
		}
	}
	for _, name := range names {
		if elsewhere(name) && out[name] == "" {
			out[name] = ""
		}
	}
	return out
}
