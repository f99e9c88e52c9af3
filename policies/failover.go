package policies

import (
	"fmt"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/stat"
)

// Regional is what one region needs of a quota: what its own traffic asks for,
// and, on the worst of the declared failovers, the share that it receives of
// the lost region's. own holds each region's estimate; of a lost region that is
// missing nothing is known, and the region must not be lowered.
//
// The peaks are added as if they came at one time: the day on which a region is
// lost may be the busiest one.
func Regional(region string, own map[string]rlc.Rate, failovers []rlc.Failover) (rate rlc.Rate, why string, unknown []string) {
	rate = own[region]
	for _, f := range failovers {
		share := f.To[region]
		if share <= 0 || f.Lose == region {
			continue
		}
		lost, known := own[f.Lose]
		if !known {
			unknown = append(unknown, f.Lose)
			continue
		}
		if with := own[region] + lost*rlc.Rate(share); with > rate {
			rate = with
			why = fmt.Sprintf("%.0f %% of the %s of %s when it is lost", 100*share, stat.RateText(lost), f.Lose)
		}
	}
	return rate, why, unknown
}
