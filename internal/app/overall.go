package app

import "github.com/openrlc/rlc"

// overall are the quotas over all regions and zones, by ID: what a region's own
// one counts is part of theirs, and added up once.
type overall map[string]bool

func overallOf(quotas []rlc.Quota) overall {
	o := overall{}
	for _, q := range quotas {
		o[q.ID()] = true
	}
	return o
}

// part reports whether a quota's traffic is counted by another one, too.
func (o overall) part(q rlc.Quota) bool {
	return q.Place() != q.Bucket && o[rlc.QuotaID(q.Bucket, q.Key)]
}
