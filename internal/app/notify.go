package app

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/notify"
	"github.com/openrlc/rlc/policies"
)

// openNotify makes the sender of the targets that are configured.
func (a *App) openNotify() (err error) {
	c := a.Config.Notify
	file := func(name string) func() (string, error) {
		return func() (string, error) {
			b, err := os.ReadFile(name)
			return strings.TrimSpace(string(b)), err
		}
	}
	n := notify.Config{Outbox: a.Records, Hosts: words(c.Hosts), Digest: c.Digest, Log: a.log}
	for _, text := range words(c.Networks) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("notify networks: %w", err)
		}
		n.Networks = append(n.Networks, p)
	}
	if c.SlackFile != "" {
		n.Targets = append(n.Targets, notify.Target{Name: "slack", Kind: notify.Slack, URL: file(c.SlackFile)})
	}
	if c.WebhookFile != "" {
		t := notify.Target{Name: "webhook", Kind: notify.Webhook, URL: file(c.WebhookFile)}
		if c.SecretFile != "" {
			t.Secret = file(c.SecretFile)
		}
		n.Targets = append(n.Targets, t)
	}
	a.notify, err = notify.New(n)
	return err
}

// words splits a list at commas.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// notices delivers what is to be told, on the replica that leads, until ctx
// ends.
func (a *App) notices(ctx context.Context) error {
	defer a.notify.Close()
	for wait(ctx, time.Second) {
		if !a.leads.Load() {
			continue
		}
		if err := a.notify.Deliver(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("notices wait", "err", err)
		}
	}
	return nil
}

// tell puts a notice for a service's owners, and for those that it names
// itself, into the outbox.
func (a *App) tell(ctx context.Context, n rlc.Notice) error {
	targets := a.notify.Names()
	if len(targets) == 0 {
		return nil
	}
	_, c := a.Desired()
	if c != nil && c.Service(n.Service) != nil && n.Owners == nil {
		n.Owners = c.Service(n.Service).Owners
	}
	if n.At.IsZero() {
		n.At = time.Now().UTC()
	}
	return a.Records.AddNotice(ctx, n, targets)
}

// announce tells owners of what is proposed and of overrides. The owners of a
// caller hear of a tightening while it is open, so before it merges.
func (a *App) announce(ctx context.Context) error {
	if len(a.notify.Names()) == 0 {
		return nil
	}
	if err := a.announceFailed(ctx); err != nil {
		return err
	}
	open, _, err := a.Records.Proposals(ctx, rlc.Open, "", rlc.Page{Size: 1000})
	if err != nil {
		return err
	}
	for _, p := range open {
		if err := a.announceTightening(ctx, p); err != nil {
			return err
		}
	}
	for _, o := range a.Overrides() {
		if !o.Stands(time.Now()) {
			continue
		}
		n := rlc.Notice{ID: "override-" + o.ID, Kind: "override", Service: o.Service, Urgent: true, At: o.From, URL: a.URL + "/emergency", Text: fmt.Sprintf("%s set an override: %s, %s, until %s: %s", o.Actor, o.Subject(), o.Does(), o.Until.UTC().Format("15:04 UTC"), o.Reason)}
		if err := a.tell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) announceTightening(ctx context.Context, p rlc.Proposal) error {
	_, c := a.Desired()
	if c == nil {
		return nil
	}
	byCaller := map[string][]string{}
	for _, ch := range p.Changes {
		caller := ch.Key["caller"]
		if caller != "" && policies.LowersRate(&ch) {
			move := fmt.Sprintf("%s %s → %s/s", ch.ID(), rlc.Number(ch.Old.Rate), rlc.Number(ch.New.Rate))
			if m, _ := policies.MovedHours(&ch); m.Lower > 0 && ch.NewTimed.Hours != nil {
				move += ", " + policies.HoursText(ch.NewTimed.Hours)
			}
			byCaller[caller] = append(byCaller[caller], move)
		}
	}
	for caller, quotas := range byCaller {
		n := rlc.Notice{
			ID: p.ID + "-tightens-" + caller, Kind: "tightening", Service: p.Service, At: time.Now().UTC(), URL: a.URL + "/proposals/" + pathEscape(p.ID),
			Owners: []string{}, Text: "is about to tighten " + caller + " once it is merged: " + strings.Join(quotas[:min(len(quotas), 5)], ", "),
		}
		if s := c.Service(caller); s != nil {
			n.Owners = slices.Clone(s.Owners)
		}
		if err := a.tell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
