package app

import (
	"context"

	"github.com/openrlc/rlc"
)

// Ask records that a person asks for a higher limit, and tells the owners of
// the service. The limit stays.
func (a *App) Ask(ctx context.Context, act rlc.AuditEntry, told rlc.Notice) error {
	if err := a.Records.AddAudit(ctx, act); err != nil {
		return err
	}
	told.URL = a.URL + "/services/" + pathEscape(told.Service) + "#asked"
	return a.tell(ctx, told)
}
