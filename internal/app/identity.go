package app

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/openrlc/rlc/internal/config"
	"github.com/openrlc/rlc/internal/identity"
	"github.com/openrlc/rlc/web"
)

// people fills in who lets people in, and what they may do.
func (a *App) people(c *web.Config) error {
	o, p, r := a.Config.OIDC, a.Config.Proxy, a.Config.Roles
	c.Identities = a.Records
	c.Access = web.Access{Admins: config.List(r.Admins), OnCall: config.List(r.OnCall), Private: r.Private, FourEyes: r.FourEyes}
	if p.Networks != "" {
		networks, err := config.Networks(p.Networks)
		if err != nil {
			return fmt.Errorf("proxy.networks: %w", err)
		}
		c.Proxy = &identity.Proxy{Networks: networks, User: http.CanonicalHeaderKey(p.UserHeader), Groups: http.CanonicalHeaderKey(p.GroupsHeader)}
	}
	if o.Issuer == "" {
		return nil
	}
	at := identity.OIDCConfig{Issuer: o.Issuer, ClientID: o.ClientID, RedirectURL: strings.TrimRight(o.PublicURL, "/") + "/login/callback", Groups: o.Groups}
	if o.SecretFile != "" {
		at.Secret = config.FromFile(o.SecretFile).Read
	}
	provider, err := identity.NewOIDC(at)
	if err != nil {
		return fmt.Errorf("oidc: %w", err)
	}
	c.Provider, c.Secure = provider, strings.HasPrefix(o.PublicURL, "https://")
	return nil
}
