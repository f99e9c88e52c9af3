// Package quotafile reads and writes the config repository's YAML: strict in,
// canonical out. It is the one validator: what writes quotas, what checks a
// review and what enforces all run it on the same bytes.
//
// Every problem carries file:line:col and, where one is known, a hint. All
// problems of a file are found at once, except behind a syntax error. A file
// is valid or refused whole; a refused policy takes its own service with it
// and no other.
package quotafile

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/openrlc/rlc"
)

// The limits of what is read. Each is refused by name, never cut short, and
// they are the same for whoever writes and whoever reads.
const (
	MaxFile       = 1 << 20 // bytes of a file that people write
	MaxQuotasFile = 4 << 20 // bytes of a quotas.yaml
	MaxQuotas     = 20_000  // quotas of a service
	MaxBuckets    = 1_000   // buckets of a service
	MaxName       = 256     // bytes of a service's, caller's or owner's name in a policy
	MaxValue      = 1_024   // bytes of an attribute's value in a pattern or key
)

// Config is a whole config repository, parsed.
type Config struct {
	// Services are the valid ones, sorted by name, every default resolved.
	Services []*rlc.Service
	// Broken says why a service is not in Services: the errors of its
	// policy.yaml, its quotas.yaml, or of a file that it builds on. Keyed by
	// the service's name, or by its path segment where the name is unreadable.
	Broken map[string][]rlc.Problem
	// Quotas are those of valid quotas.yaml files, by service, in file order.
	Quotas map[string][]rlc.Quota
	// Profiles are the built in ones and the repository's valid ones.
	Profiles map[string]*rlc.Profile
	// Contracts are the repository's valid ones.
	Contracts map[string]rlc.Contract
	// Problems holds everything that was found, errors and warnings, sorted by
	// file, line and column.
	Problems []rlc.Problem

	quotas map[string]map[string]*rlc.Quota // service → QuotaID
}

// Parse reads a repository's files. It never fails as a whole: what is wrong
// stands in Problems. A nil check leaves policies' kinds and parameters
// unchecked but for a kind that is missing.
func Parse(files rlc.Files, check rlc.CheckPolicy) *Config {
	p := newParser(check)
	p.parse(files)
	return p.config
}

// Service finds a valid service by name, or nil.
func (c *Config) Service(name string) *rlc.Service {
	i, ok := slices.BinarySearchFunc(c.Services, name, func(s *rlc.Service, n string) int { return strings.Compare(s.Name, n) })
	if !ok {
		return nil
	}
	return c.Services[i]
}

// Quota finds the quota of a bucket's key, or nil where there is none.
func (c *Config) Quota(service, bucket string, key rlc.Key) *rlc.Quota {
	return c.quotas[service][rlc.QuotaID(bucket, key)]
}

// QuotaByID finds a quota by its ID, that of a region or zone too; nil where
// there is none.
func (c *Config) QuotaByID(service, id string) *rlc.Quota { return c.quotas[service][id] }

// Valid is nil when Problems holds no error; warnings do not count. The error
// wraps rlc.ErrInvalid and names the first ten.
func (c *Config) Valid() error {
	var lines []string
	errors := 0
	for _, p := range c.Problems {
		if p.Warning {
			continue
		}
		if errors++; errors <= 10 {
			lines = append(lines, p.String())
		}
	}
	if errors == 0 {
		return nil
	}
	if errors > len(lines) {
		lines = append(lines, fmt.Sprintf("and %d more", errors-len(lines)))
	}
	return fmt.Errorf("%w: %s", rlc.ErrInvalid, strings.Join(lines, "\n"))
}

// quotasAlone is the warning for quotas that nothing can use.
const quotasAlone = "quotas without a policy.yaml beside them"

// parser carries what the files of one repository share.
type parser struct {
	check     rlc.CheckPolicy
	folders   bool            // a file must stand in the folder or under the name that it names
	alone     bool            // profiles and contracts are out of sight: references are not checked
	profiles  map[string]bool // names that have a file, valid or not
	contracts map[string]bool
	config    *Config
}

func newParser(check rlc.CheckPolicy) *parser {
	return &parser{
		check:     check,
		folders:   true,
		profiles:  map[string]bool{},
		contracts: map[string]bool{},
		config: &Config{
			Broken:    map[string][]rlc.Problem{},
			Quotas:    map[string][]rlc.Quota{},
			Profiles:  BuiltinProfiles(),
			Contracts: map[string]rlc.Contract{},
			quotas:    map[string]map[string]*rlc.Quota{},
		},
	}
}

func (p *parser) parse(files rlc.Files) {
	base := layer{}
	var broken []rlc.Problem // why no service can be resolved
	if data, ok := files[defaultsPath]; ok {
		var problems []rlc.Problem
		base, problems = p.defaults(defaultsPath, data)
		p.report(problems)
		broken = errorsOf(problems)
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		stem := strings.TrimSuffix(path.Base(name), ".yaml")
		switch kindOf(name) {
		case kindProfile:
			p.profiles[stem] = true
			profile, problems := p.profile(name, files[name])
			p.report(problems)
			delete(p.config.Profiles, stem)
			if profile != nil {
				p.config.Profiles[stem] = profile
			}
		case kindContract:
			p.contracts[stem] = true
			contract, problems := p.contract(name, files[name])
			p.report(problems)
			if contract != nil {
				p.config.Contracts[stem] = *contract
			}
		}
	}
	for _, name := range names {
		if kindOf(name) == kindPolicy {
			segment := path.Base(path.Dir(name))
			p.service(segment, name, files, base, broken)
		}
	}
	for _, name := range names {
		segment := path.Base(path.Dir(name))
		if _, policy := files[path.Join(servicesDir, segment, policyName)]; !policy && kindOf(name) == kindQuotas {
			p.service(segment, "", files, base, broken)
		}
	}
	p.claims()
	slices.SortFunc(p.config.Services, func(a, b *rlc.Service) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(p.config.Problems, byPlace)
}

// service reads the policy and the quotas of one folder. The policy's path is
// empty where there is none.
func (p *parser) service(segment, policyPath string, files rlc.Files, base layer, broken []rlc.Problem) {
	var service *rlc.Service
	name := segment
	if policyPath != "" {
		var named string
		var problems []rlc.Problem
		service, named, problems = p.policy(policyPath, files[policyPath], base)
		p.report(problems)
		if named != "" {
			name = named
		}
		broken = append(slices.Clone(broken), errorsOf(problems)...)
	}

	quotasPath := path.Join(servicesDir, segment, quotasName)
	if data, ok := files[quotasPath]; ok {
		named, lines, problems := p.quotas(quotasPath, data)
		if policyPath == "" {
			if named != "" {
				name = named
			}
			problems = append(problems, rlc.Problem{File: quotasPath, Line: 1, Column: 1, Warning: true,
				Message: quotasAlone, Hint: "nothing uses them"})
		}
		if service != nil {
			problems = append(problems, orphans(quotasPath, service, lines)...)
		}
		p.report(problems)
		if errs := errorsOf(problems); len(errs) > 0 {
			broken = append(slices.Clone(broken), errs...)
		} else {
			p.keep(name, lines)
		}
	}
	switch {
	case len(broken) > 0:
		p.config.Broken[name] = append(p.config.Broken[name], broken...)
	case service != nil:
		p.config.Services = append(p.config.Services, service)
	}
}

// keep files a service's quotas.
func (p *parser) keep(service string, lines []line) {
	quotas := make([]rlc.Quota, len(lines))
	byID := make(map[string]*rlc.Quota, len(lines))
	for i := range lines {
		quotas[i] = lines[i].Quota
		byID[quotas[i].ID()] = &quotas[i]
	}
	p.config.Quotas[service] = quotas
	p.config.quotas[service] = byID
}

func (p *parser) report(problems []rlc.Problem) {
	p.config.Problems = append(p.config.Problems, problems...)
}

func errorsOf(problems []rlc.Problem) []rlc.Problem {
	var errs []rlc.Problem
	for _, p := range problems {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return errs
}
