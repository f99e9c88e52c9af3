package quotafile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"github.com/openrlc/rlc"
)

// The names of config.md 1.
const (
	defaultsPath = "defaults.yaml"
	profilesDir  = "profiles"
	contractsDir = "contracts"
	servicesDir  = "services"
	policyName   = "policy.yaml"
	quotasName   = "quotas.yaml"
)

// The kinds of file, as written after "kind:".
const (
	kindDefaults = "Defaults"
	kindProfile  = "Profile"
	kindContract = "Contract"
	kindPolicy   = "ServicePolicy"
	kindQuotas   = "ServiceQuotas"
)

// kindOf says which kind of file stands at this path, "" for one that is not
// read.
func kindOf(name string) string {
	parts := strings.Split(name, "/")
	yaml := strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(path.Base(name), ".")
	switch {
	case name == defaultsPath:
		return kindDefaults
	case len(parts) == 2 && parts[0] == profilesDir && yaml:
		return kindProfile
	case len(parts) == 2 && parts[0] == contractsDir && yaml:
		return kindContract
	case len(parts) == 3 && parts[0] == servicesDir && !strings.HasPrefix(parts[1], ".") && parts[1] != "":
		switch parts[2] {
		case policyName:
			return kindPolicy
		case quotasName:
			return kindQuotas
		}
	}
	return ""
}

// Reads reports whether Parse reads the file at this slash-separated path.
func Reads(name string) bool { return kindOf(name) != "" }

// SizeLimit is how many bytes the file at this path may have. Whoever reads it
// from disk or git may stop one byte later: Parse then refuses it by name.
func SizeLimit(name string) int {
	if path.Base(name) == quotasName {
		return MaxQuotasFile
	}
	return MaxFile
}

// PathSegment is the folder of a service. A name made of lower-case letters,
// digits, dots, dashes and underscores is its own segment; any other becomes
// an underscore, a slug for the reader and a hash for uniqueness. The leading
// underscore keeps the two apart: no name can be chosen so that it lands in
// another service's folder.
func PathSegment(service string) string {
	if plainSegment(service) {
		return service
	}
	var slug strings.Builder
	for _, r := range strings.ToLower(service) {
		if slug.Len() == 40 {
			break
		}
		if r < 0x80 && segmentByte(byte(r)) && r != '.' {
			slug.WriteRune(r)
		} else if s := slug.String(); s != "" && !strings.HasSuffix(s, "-") {
			slug.WriteByte('-')
		}
	}
	sum := sha256.Sum256([]byte(service))
	return "_" + strings.Trim(slug.String(), "-_") + "-" + hex.EncodeToString(sum[:6])
}

// QuotasPath is where a service's quotas.yaml stands in the repository.
func QuotasPath(service string) string {
	return path.Join(servicesDir, PathSegment(service), quotasName)
}

// PolicyPath is where a service's policy.yaml stands in the repository.
func PolicyPath(service string) string {
	return path.Join(servicesDir, PathSegment(service), policyName)
}

// plainSegment reports whether s matches [a-z0-9][a-z0-9._-]{0,62}.
func plainSegment(s string) bool {
	if s == "" || len(s) > 63 || strings.IndexByte("._-", s[0]) >= 0 {
		return false
	}
	for i := range len(s) {
		if !segmentByte(s[i]) {
			return false
		}
	}
	return true
}

func segmentByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

func byPlace(a, b rlc.Problem) int {
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
