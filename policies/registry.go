// Package policies finds a policy by its kind, decodes its parameters
// strictly, and wraps what it proposes in guards.
package policies

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/policies/capacity"
	"github.com/openrlc/rlc/policies/contractual"
	"github.com/openrlc/rlc/policies/external"
	"github.com/openrlc/rlc/policies/historical"
	"github.com/openrlc/rlc/policies/predictive"
)

// Kind is one way to come to an estimate.
type Kind struct {
	Name  string
	build func(*decoder) rlc.Policy
}

// Registry finds kinds by name. It is read-only and safe for concurrent use.
type Registry struct {
	kinds []Kind
}

// Config says what the kinds may do. Its zero value lets no policy ask anybody.
type Config struct {
	External external.ClientConfig // whom policies of kind external may ask
}

// Builtin holds every kind of this version, as New does for the zero Config.
func Builtin() *Registry { return New(Config{}) }

// New holds every kind of this version.
func New(c Config) *Registry {
	return &Registry{kinds: []Kind{
		{Name: "historical", build: buildHistorical},
		{Name: "predictive", build: buildPredictive},
		{Name: "contractual", build: buildContractual},
		{Name: "capacity", build: buildCapacity},
		{Name: "recent", build: buildRecent},
		{Name: "expression", build: buildExpression},
		{Name: "external", build: buildExternal(external.NewClient(c.External))},
	}}
}

// Kinds are the names of the kinds, in the order of their pages.
func (r *Registry) Kinds() []string {
	var names []string
	for _, k := range r.kinds {
		names = append(names, k.Name)
	}
	return names
}

// Check is an rlc.CheckPolicy: it reports every fault of a kind's parameters.
func (r *Registry) Check(kind string, params rlc.Params) []rlc.Problem {
	_, problems := r.decode(kind, params)
	return problems
}

// New returns the policy that spec describes, or an error that wraps
// rlc.ErrInvalid and names every fault.
func (r *Registry) New(spec rlc.PolicySpec) (rlc.Policy, error) {
	p, problems := r.decode(spec.Kind, spec.Params)
	if len(problems) == 0 {
		return p, nil
	}
	var texts []string
	for _, x := range problems {
		texts = append(texts, x.String())
	}
	return nil, fmt.Errorf("%w: %s", rlc.ErrInvalid, strings.Join(texts, "; "))
}

func (r *Registry) decode(kind string, params rlc.Params) (rlc.Policy, []rlc.Problem) {
	for _, k := range r.kinds {
		if k.Name == kind {
			d := &decoder{kind: kind, params: params}
			p := k.build(d)
			return p, d.finish()
		}
	}
	return nil, []rlc.Problem{{Message: fmt.Sprintf("unknown policy kind %q", kind), Hint: "known: " + strings.Join(r.Kinds(), ", ")}}
}

// ContractName is the contract that a contractual policy names, "" for one
// that carries its numbers itself and for other kinds. The caller puts that
// contract into rlc.Input.
func ContractName(spec rlc.PolicySpec) string {
	if spec.Kind != "contractual" {
		return ""
	}
	name, _ := spec.Params["contract"].(string)
	return name
}

// PolicyHash identifies a policy with its parameters and guards: estimates are
// compared over days only under the same hash.
func PolicyHash(spec rlc.PolicySpec, guards rlc.Guards) string {
	text, err := json.Marshal(struct {
		Kind   string
		Params rlc.Params
		Guards rlc.Guards
	}{spec.Kind, spec.Params, resolve(guards)})
	if err != nil { // a value that JSON has no form for: its Go form is as stable
		text = fmt.Appendf(nil, "%s %#v %#v", spec.Kind, spec.Params, guards)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func buildHistorical(d *decoder) rlc.Policy {
	var c historical.Config
	if v, ok := d.number("headroom", 0, 10); ok {
		c.Headroom = &v
	}
	c.Window, _ = d.duration("window", 7*24*time.Hour, 12*7*24*time.Hour)
	return historical.New(c)
}

func buildPredictive(d *decoder) rlc.Policy {
	var c predictive.Config
	if v, ok := d.number("headroom", 0, 10); ok {
		c.Headroom = &v
	}
	c.Horizon, _ = d.duration("horizon", 24*time.Hour, 14*24*time.Hour)
	c.Planned, _ = d.number("planned", 0, 10)
	if v, ok := d.text("schedule"); ok && v != "static" && v != "hourly" {
		d.problem(fmt.Sprintf("schedule %q is unknown", v), "static: one number; hourly: one for each hour")
	} else {
		c.Hourly = v == "hourly"
	}
	return predictive.New(c)
}

func buildContractual(d *decoder) rlc.Policy {
	name, named := d.text("contract")
	rate, rated := d.number("rate", 0, rlc.MaxRate)
	burst, bursted := d.number("burst", 1, rlc.MaxRate)
	from, fromSet := d.time("from")
	until, untilSet := d.time("until")
	reference, referenced := d.text("reference")
	switch {
	case d.failed():
		return nil
	case named && (rated || bursted || fromSet || untilSet || referenced):
		d.problem("a contractual policy has either a contract's name or its own numbers", "drop contract, or drop rate, burst, from, until and reference")
	case named && name == "":
		d.problem("contract is blank", "name a file of contracts/")
	case !named && !rated:
		d.problem("a contractual policy needs a contract or a rate", "write contract: NAME, or rate and burst")
	case rated && rate <= 0:
		d.problem("rate is 0", "a promised rate is above 0; to admit nothing write a limit by hand")
	case fromSet && untilSet && !from.Before(until):
		d.problem("until is not after from", "")
	case burst != float64(rlc.Burst(burst)):
		d.problem("burst is not a whole number", "")
	case named:
		return contractual.New(nil)
	default:
		return contractual.New(&rlc.Contract{
			Limit: rlc.Limit{Rate: rlc.Rate(rate), Burst: rlc.Burst(burst)},
			From:  from, Until: until, Reference: reference,
		})
	}
	return nil
}

func buildCapacity(*decoder) rlc.Policy { return capacity.Policy{} }
