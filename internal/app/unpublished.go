package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/openrlc/rlc"
)

// announceFailed tells owners of proposals of the last day that cannot be
// published: of the same fault once a day.
func (a *App) announceFailed(ctx context.Context) error {
	failed, _, err := a.Records.Proposals(ctx, rlc.Failed, "", rlc.Page{Size: 100})
	if err != nil {
		return err
	}
	for _, p := range failed {
		if time.Since(p.Decided) > 24*time.Hour {
			continue
		}
		fault := sha256.Sum256([]byte(p.Service + "\n" + p.Error))
		err := a.tell(ctx, rlc.Notice{
			ID: fmt.Sprintf("failed-%s-%x", p.Decided.Format(time.DateOnly), fault[:8]), Kind: "failed", Service: p.Service, Urgent: true,
			At: p.Decided, URL: a.URL + "/proposals/" + pathEscape(p.ID), Text: "has new numbers that cannot be published; those in force stay: " + p.Error,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
