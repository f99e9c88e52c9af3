package rlc

import "time"

// Right is what somebody may do. The zero value may do nothing.
type Right string

// The roles of people and tokens. Whose service a thing belongs to is said by
// the owners of its policy, never by the role alone.
const (
	MayRead   Right = "viewer" // reads
	MayRun    Right = "bot"    // reads, and starts runs
	MayOwn    Right = "owner"  // acts on services of its own
	MayActAll Right = "oncall" // acts on every service
	MayAdmin  Right = "admin"  // also hands out tokens and answers rewritten history
)

// SignIn is what an identity provider said of a person.
type SignIn struct {
	Name   string   // for the history: a verified address, or the provider's own name
	Groups []string // nil: none
	// Grant asks the provider again; a secret. nil: it cannot be asked.
	Grant []byte
}

// Session is one person's sign-in. The records hold no secret of it: ID is the
// SHA-256 of what the cookie holds, and Sealed is readable with the cookie only.
type Session struct {
	ID      string // SHA-256, hex
	Name    string
	Via     string // what vouched for it
	Groups  []string
	Sealed  []byte    // SignIn.Grant under the cookie's key; nil: none
	Created time.Time // UTC
	Checked time.Time // when the provider was last asked
	Seen    time.Time // last request, to about a minute
	Until   time.Time // ends then whatever happens
}

// Token is an API token as the records know it. The token itself is shown once
// and stored nowhere: Hash is its SHA-256.
type Token struct {
	ID       string
	Name     string // what it is for; acts bear it
	Hash     string // SHA-256, hex
	Right    Right
	Services []string // acts on these only; empty: on all that the role allows
	Actor    string   // who made it
	Created  time.Time
	Until    time.Time // ends then
	Used     time.Time // last use, to about a minute; zero: never
	Revoked  time.Time // zero: not
}

// AuditFilter selects entries of the audit log. Zero fields select all.
type AuditFilter struct {
	Actor  string // exactly
	Action string // exactly, or all that begin with it where it ends in a dot
	Object string // contained in object or detail
	From   time.Time
	Until  time.Time // not included
}
