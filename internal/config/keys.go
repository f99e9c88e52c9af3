package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openrlc/rlc/internal/redisconn"
	"github.com/openrlc/rlc/internal/scheduler"
)

// Keys are all settings, in the order of the example file.
func Keys() []Key {
	return append([]Key{{
		Name: "listen", Default: "127.0.0.1:8080", field: func(c *Server) any { return &c.Listen },
		Means:       "Address of pages and API; port 0 takes a free one.",
		Consequence: "On loopback, this machine's users read without credentials. From anywhere else reading needs the token too; put a proxy with TLS before it.",
		check:       func(c *Server) error { return address(c.Listen) },
	}, {
		Name: "metrics_listen", Unset: "no second listener", Example: "127.0.0.1:9090", field: func(c *Server) any { return &c.MetricsListen },
		Means:       "Address of a second listener that answers /metrics and nothing else, without credentials.",
		Consequence: "Whoever reaches the address reads the names of services, buckets and callers. /metrics on the first listener goes on needing what every page needs.",
		check: func(c *Server) error {
			if c.MetricsListen == "" {
				return nil
			}
			return address(c.MetricsListen)
		},
	}, {
		Name: "data", Default: "rlc-data", field: func(c *Server) any { return &c.Data },
		Means:       "Folder that holds everything the embedded parts keep; it is created, for its owner only.",
		Consequence: "Nothing is written outside it. Keep it: it may hold the records, the history and the config repository. With every part configured to be elsewhere, losing it loses the token.",
	}, {
		Name: "token", Default: "DATA/token", field: func(c *Server) any { return &c.Token },
		Means:       "What acting needs, at least 16 characters; the default is made at the first start.",
		Consequence: "Who knows it may accept proposals and start runs. When it changes, sessions that were opened with the old one end.",
		check: func(c *Server) error {
			if c.Token.File() == c.OwnToken() {
				return nil
			}
			text, err := c.Token.Read()
			if err == nil && len(text) < MinToken {
				err = fmt.Errorf("the token has %d characters, want at least %d; make one with: openssl rand -hex 16", len(text), MinToken)
			}
			return err
		},
	}, {
		Name: "store.dsn", Default: "sqlite:DATA/rlc.db", Example: "postgres://rlc@db.example.com/rlc", field: func(c *Server) any { return &c.Store },
		Means:       "Where the records are: sqlite:/path/of/file.db, or a PostgreSQL URL.",
		Consequence: "SQLite is one file for one replica. What stands in the old database is not copied: sketches are read from Prometheus again, the log of runs and acts stays behind.",
		check: func(c *Server) error {
			dsn, err := c.Store.Read()
			if err != nil {
				return err
			}
			return storeDSN(dsn)
		},
	}, {
		Name: "prometheus.url", Unset: "the embedded store in DATA/prometheus", Example: "https://prometheus.example.com", field: func(c *Server) any { return &c.Prometheus.URL },
		Means:       "The Prometheus that history is read from, without /api/v1.",
		Consequence: "The embedded store is not started then, and nothing scrapes the enforcers but your Prometheus. While it cannot be reached every quota is held as it is.",
		check: func(c *Server) error {
			if c.Prometheus.URL == "" {
				return nil
			}
			return httpURL(c.Prometheus.URL)
		},
	}, {
		Name: "prometheus.user", Unset: "no HTTP Basic authentication", Example: "rlc", field: func(c *Server) any { return &c.Prometheus.User },
		Means:       "Whom HTTP Basic authentication says we are.",
		Consequence: "prometheus.password_file belongs with it.",
		check: func(c *Server) error {
			return together(c.Prometheus.User, c.Prometheus.PasswordFile, "prometheus.password_file")
		},
	}, {
		Name: "prometheus.password_file", Unset: "none", Example: "/run/secrets/prometheus-password", field: func(c *Server) any { return &c.Prometheus.PasswordFile }, private: true,
		Means:       "File with the password of prometheus.user.",
		Consequence: "It is read for every request: a new password counts at once.",
		check: func(c *Server) error {
			return firstOf(readable(c.Prometheus.PasswordFile), together(c.Prometheus.PasswordFile, c.Prometheus.User, "prometheus.user"))
		},
	}, {
		Name: "prometheus.bearer_file", Unset: "no token is sent", Example: "/run/secrets/prometheus-token", field: func(c *Server) any { return &c.Prometheus.BearerFile }, private: true,
		Means:       "File with the bearer token that Prometheus is sent.",
		Consequence: "It is read for every request: a new token counts at once. Not together with prometheus.user.",
		check: func(c *Server) error {
			if c.Prometheus.BearerFile != "" && c.Prometheus.User != "" {
				return errors.New("given beside prometheus.user: one of them is wanted")
			}
			return readable(c.Prometheus.BearerFile)
		},
	}, {
		Name: "prometheus.headers", Unset: "none", Example: "{X-Scope-OrgID: payments}", field: func(c *Server) any { return &c.Prometheus.Headers },
		Means:       "Headers sent with every request, as a mapping: X-Scope-OrgID names a tenant of Mimir.",
		Consequence: "Values are not shown, and are no place for secrets all the same: Authorization and Cookie are refused.",
		check:       func(c *Server) error { return headers(c.Prometheus.Headers) },
	}, {
		Name: "prometheus.ca_file", Unset: "the system's authorities", Example: "/etc/rlc/prometheus-ca.pem", field: func(c *Server) any { return &c.Prometheus.CAFile },
		Means:       "PEM file of the authorities that may sign Prometheus' certificate.",
		Consequence: "Only these are trusted then. It is read again when it changes. A server is always verified.",
		check:       func(c *Server) error { return readable(c.Prometheus.CAFile) },
	}, {
		Name: "prometheus.cert_file", Unset: "no client certificate", Example: "/etc/rlc/client.pem", field: func(c *Server) any { return &c.Prometheus.CertFile },
		Means:       "PEM file of our certificate, for a Prometheus that asks for one (mTLS).",
		Consequence: "prometheus.key_file belongs with it. Both are read again when they change.",
		check: func(c *Server) error {
			return firstOf(readable(c.Prometheus.CertFile), together(c.Prometheus.CertFile, c.Prometheus.KeyFile, "prometheus.key_file"))
		},
	}, {
		Name: "prometheus.key_file", Unset: "none", Example: "/run/secrets/client-key.pem", field: func(c *Server) any { return &c.Prometheus.KeyFile }, private: true,
		Means:       "PEM file of the key of prometheus.cert_file.",
		Consequence: "prometheus.cert_file belongs with it.",
		check: func(c *Server) error {
			return firstOf(readable(c.Prometheus.KeyFile), together(c.Prometheus.KeyFile, c.Prometheus.CertFile, "prometheus.cert_file"))
		},
	}, {
		Name: "prometheus.server_name", Unset: "the URL's host", Example: "prometheus.internal", field: func(c *Server) any { return &c.Prometheus.ServerName },
		Means:       "The name that Prometheus' certificate must have.",
		Consequence: "For a server that is reached by another name than its certificate's.",
	}, {
		Name: "prometheus.thanos", Default: "false", field: func(c *Server) any { return &c.Prometheus.Thanos },
		Means:       "Whether it is Thanos: asks it to refuse partial answers, to join replicas, and to give raw samples.",
		Consequence: "Without it an answer that lacks a store looks like a drop in traffic.",
	}, {
		Name: "prometheus.range_only", Default: "false", field: func(c *Server) any { return &c.Prometheus.RangeOnly },
		Means:       "Whether remote read is not even tried.",
		Consequence: "Range queries take some thirty times as long. A server without remote read is found out by itself.",
	}, {
		Name: "prometheus.networks", Unset: "any but link-local ones; this machine only where the URL says so", Example: "10.0.0.0/8", field: func(c *Server) any { return &c.Prometheus.Networks },
		Means:       "The only networks that the URL's host may lead to, as CIDRs separated by commas.",
		Consequence: "Looked at with every connection, so that a name that changes its address leads nowhere else.",
		check:       func(c *Server) error { return networks(c.Prometheus.Networks) },
	}, {
		Name: "prometheus.replica_label", Unset: "none", Example: "replica", field: func(c *Server) any { return &c.Prometheus.ReplicaLabel },
		Means:       "The label that tells the servers of an HA pair apart behind one URL that does not deduplicate.",
		Consequence: "Of what differs in it alone the highest value counts. Plain selectors are then read by range queries, and setting it reads history anew.",
	}, {
		Name: "prometheus.query_timeout", Default: "30s", field: func(c *Server) any { return &c.Prometheus.QueryTimeout }, min: time.Second, max: 10 * time.Minute,
		Means:       "How long one query may take.",
		Consequence: "A query that takes longer is cut in two and tried again; below what your Prometheus needs, buckets are held.",
	}, {
		Name: "prometheus.service_timeout", Default: "5m", field: func(c *Server) any { return &c.Prometheus.ServiceTimeout }, min: 10 * time.Second, max: 6 * time.Hour,
		Means:       "How long all reading of one service's history may take in one run.",
		Consequence: "Beyond, the service's buckets are held, and what was read of whole days stays: the next run goes on there. A first run of thousands of series may want more.",
	}, {
		Name: "prometheus.max_queries", Default: "4", field: func(c *Server) any { return &c.Prometheus.MaxQueries },
		Means:       "How many queries are under way at once, over all services.",
		Consequence: "More makes a first run shorter and your Prometheus busier.",
		check: func(c *Server) error {
			if n := c.Prometheus.MaxQueries; n < 1 || n > 64 {
				return fmt.Errorf("%d is outside 1 to 64", n)
			}
			return nil
		},
	}, {
		Name: "retention", Default: "40d", field: func(c *Server) any { return &c.Retention }, min: 24 * time.Hour, max: 5 * 365 * 24 * time.Hour,
		Means:       "How long the embedded Prometheus store keeps samples.",
		Consequence: "It must exceed the longest lookback of a policy; disk grows with it. Without effect where prometheus.url is set.",
	}, {
		Name: "scrape", Default: "5s", field: func(c *Server) any { return &c.Scrape }, min: 100 * time.Millisecond, max: time.Minute,
		Means:       "How often the embedded enforcer is scraped into the embedded store.",
		Consequence: "Pages count drops no sooner than that. Without effect where prometheus.url is set.",
	}, {
		Name: "repository.url", Default: "DATA/config.git", field: func(c *Server) any { return &c.Repository.URL },
		Means:       "The config repository: https://host/path, ssh://user@host/path, or the absolute path of a bare repository, which is made where it does not exist.",
		Consequence: "It holds the truth: policies people wrote, quotas people accepted. Back it up before anything else.",
		check:       func(c *Server) error { return remoteURL(c.Repository.URL) },
	}, {
		Name: "repository.branch", Default: "main", field: func(c *Server) any { return &c.Repository.Branch },
		Means:       "The base branch: what stands on it is desired and goes to the enforcers.",
		Consequence: "Another branch is another truth: proposals are made against it and enforcers get its quotas.",
	}, {
		Name: "repository.user", Unset: "the URL's, or git", Example: "rlc-bot", field: func(c *Server) any { return &c.Repository.User },
		Means:       "Whom the token or the key is of.",
		Consequence: "One in the URL has precedence.",
	}, {
		Name: "repository.token_file", Unset: "none is sent", Example: "/run/secrets/git-token", field: func(c *Server) any { return &c.Repository.TokenFile }, private: true,
		Means:       "https: file with the token or password, in one line.",
		Consequence: "It is read for each conversation: a new token counts at once.",
		check:       func(c *Server) error { return readable(c.Repository.TokenFile) },
	}, {
		Name: "repository.ca_file", Unset: "the system's authorities", Example: "/etc/rlc/git-ca.pem", field: func(c *Server) any { return &c.Repository.CAFile },
		Means:       "https: PEM file of authorities that are trusted beside the system's.",
		Consequence: "A server is always verified.",
		check:       func(c *Server) error { return readable(c.Repository.CAFile) },
	}, {
		Name: "repository.key_file", Unset: "none", Example: "/run/secrets/git-key", field: func(c *Server) any { return &c.Repository.KeyFile }, private: true,
		Means:       "ssh: file with the private key; required there.",
		Consequence: "It is read for each conversation.",
		check:       func(c *Server) error { return readable(c.Repository.KeyFile) },
	}, {
		Name: "repository.passphrase_file", Unset: "the key has none", Example: "/run/secrets/git-key-passphrase", field: func(c *Server) any { return &c.Repository.PassphraseFile }, private: true,
		Means:       "ssh: file with the key's passphrase, in one line.",
		Consequence: "It is read for each conversation.",
		check:       func(c *Server) error { return readable(c.Repository.PassphraseFile) },
	}, {
		Name: "repository.known_hosts_file", Unset: "none", Example: "/etc/rlc/known_hosts", field: func(c *Server) any { return &c.Repository.KnownHostsFile },
		Means:       "ssh: file with the server's key, as in known_hosts; required there.",
		Consequence: "A server with another key is refused. ssh-keyscan makes one; compare it with what the server's owner says.",
		check:       func(c *Server) error { return readable(c.Repository.KnownHostsFile) },
	}, {
		Name: "repository.networks", Unset: "any but link-local ones; this machine only where the URL says so", Example: "10.0.0.0/8", field: func(c *Server) any { return &c.Repository.Networks },
		Means:       "The only networks that the repository's host may lead to, as CIDRs separated by commas.",
		Consequence: "Looked at with every connection.",
		check:       func(c *Server) error { return networks(c.Repository.Networks) },
	}, {
		Name: "poll", Default: "2s", field: func(c *Server) any { return &c.Poll }, min: 10 * time.Millisecond, max: time.Hour,
		Means:       "How often the config repository and the files of secrets are looked at.",
		Consequence: "A merge reaches the enforcers no sooner than that.",
	}, {
		Name: "redis.url", Unset: "snapshots stay in this process", Example: "redis://redis.example.com:6379", field: func(c *Server) any { return &c.Redis.URL },
		Means:       "The Redis 7 or Valkey, single or cluster, that hands snapshots to enforcers in other processes: redis://[user:password@]host[:port][/database], rediss:// for TLS.",
		Consequence: "A quota is live when every enforcer that follows this Redis has it; without one nothing is. While Redis is away enforcers decide on what they have. Without this key enforcers elsewhere follow a checkout of the config repository.",
		check:       redisURL,
	}, {
		Name: "redis.password_file", Unset: "the URL's password, or none", Example: "/run/secrets/redis-password", field: func(c *Server) any { return &c.Redis.PasswordFile }, private: true,
		Means:       "File with the password of the Redis user.",
		Consequence: "It is read at each connection: a new password counts from the next one.",
		check: func(c *Server) error {
			return firstOf(readable(c.Redis.PasswordFile), c.besideRedis(c.Redis.PasswordFile))
		},
	}, {
		Name: "redis.ca_file", Unset: "the system's authorities", Example: "/etc/rlc/redis-ca.pem", field: func(c *Server) any { return &c.Redis.CAFile },
		Means:       "PEM file of the authorities that may sign the certificate of a rediss:// server.",
		Consequence: "Only these are trusted then. It is read at the start.",
		check: func(c *Server) error {
			return firstOf(readable(c.Redis.CAFile), c.besideRedis(c.Redis.CAFile))
		},
	}, {
		Name: "redis.prefix", Default: "rlc:", field: func(c *Server) any { return &c.Redis.Prefix },
		Means:       "What the names of all keys and channels in Redis begin with.",
		Consequence: "Installations with different prefixes may share one Redis; enforcers need the same prefix.",
		check:       func(c *Server) error { return redisconn.CheckPrefix(c.Redis.Prefix) },
	}, {
		Name: "external.hosts", Unset: "nobody is asked", Example: "models.example.com", field: func(c *Server) any { return &c.External.Hosts },
		Means:       "The hosts, or host:port, that policies of kind external may ask, separated by commas.",
		Consequence: "A policy that names another host abstains: its quotas stay as they are.",
	}, {
		Name: "external.networks", Unset: "public addresses only", Example: "10.20.0.0/16", field: func(c *Server) any { return &c.External.Networks },
		Means:       "Private networks that external.hosts may lie in, as CIDRs separated by commas.",
		Consequence: "Looked at with every connection. Without it a host with a private address is not asked.",
		check:       func(c *Server) error { return networks(c.External.Networks) },
	}, {
		Name: "schedule", Default: "17 * * * *", field: func(c *Server) any { return &c.Schedule },
		Means:       "When all services are recomputed: cron's five fields, or @every and whole minutes; UTC.",
		Consequence: "The default is off the full hour that everybody takes. A policy's edit and a person's wish start runs besides.",
		check:       func(c *Server) error { _, err := scheduler.ParseSchedule(c.Schedule); return err },
	}, {
		Name: "run_deadline", Default: "30m", field: func(c *Server) any { return &c.RunDeadline }, min: time.Second, max: 24 * time.Hour,
		Means:       "How long one run may take.",
		Consequence: "What was not computed by then is held as it is.",
	}, {
		Name: "forge.kind", Default: "none", field: func(c *Server) any { return &c.Forge.Kind },
		Means:       "Where reviews are put up: none (branches, reviewed on the pages here), github, gitlab or gitea (Forgejo too).",
		Consequence: "Branches are pushed all the same; a forge adds a review to each. What counts is what is merged.",
		check: func(c *Server) error {
			if c.Forge.Kind != "none" && c.Forge.Kind != "" && !strings.Contains(c.Repository.URL, ":") {
				return errors.New("the config repository is a folder here: a forge needs repository.url on its server")
			}
			return firstOf(oneOf(c.Forge.Kind, "none", "github", "gitlab", "gitea"))
		},
	}, {
		Name: "forge.url", Unset: "https://api.github.com or https://gitlab.com", Example: "https://git.example.com", field: func(c *Server) any { return &c.Forge.URL },
		Means:       "The root of the forge's API: of GitHub Enterprise https://host/api/v3, of GitLab, Gitea and Forgejo https://host. Gitea has no default.",
		Consequence: "The token is sent there and to no other host. http is for this machine only.",
		check: func(c *Server) error {
			if c.Forge.URL == "" {
				if c.Forge.Kind == "gitea" {
					return errors.New("gitea needs it")
				}
				return nil
			}
			return httpURL(c.Forge.URL)
		},
	}, {
		Name: "forge.repository", Unset: "the path of repository.url", Example: "acme/rlc-config", field: func(c *Server) any { return &c.Forge.Repository },
		Means:       "The config repository's name on the forge: owner/name.",
		Consequence: "It must be the repository that repository.url names.",
	}, {
		Name: "forge.token_file", Unset: "repository.token_file", Example: "/run/secrets/forge-token", field: func(c *Server) any { return &c.Forge.TokenFile }, private: true,
		Means:       "File with the token for the forge's API, in one line.",
		Consequence: "It is read for every call: a new token counts at once.",
		check:       func(c *Server) error { return readable(c.Forge.TokenFile) },
	}, {
		Name: "forge.ca_file", Unset: "repository.ca_file", Example: "/etc/rlc/forge-ca.pem", field: func(c *Server) any { return &c.Forge.CAFile },
		Means:       "PEM file of authorities that are trusted beside the system's for the forge's API.",
		Consequence: "A server is always verified. It is read at the start.",
		check:       func(c *Server) error { return readable(c.Forge.CAFile) },
	}, {
		Name: "forge.networks", Unset: "repository.networks", Example: "10.0.0.0/8", field: func(c *Server) any { return &c.Forge.Networks },
		Means:       "The only networks that the forge's host may lead to, as CIDRs separated by commas.",
		Consequence: "Looked at with every connection.",
		check:       func(c *Server) error { return networks(c.Forge.Networks) },
	}, {
		Name: "forge.app_id", Unset: "a token is used", Example: "123456", field: func(c *Server) any { return &c.Forge.AppID },
		Means:       "GitHub: the id of the App that RLC acts as.",
		Consequence: "forge.app_installation and forge.app_key_file belong with it. Tokens are made by the hour, for git as well where repository.token_file is not set.",
	}, {
		Name: "forge.app_installation", Unset: "none", Example: "7890123", field: func(c *Server) any { return &c.Forge.AppInstallation },
		Means:       "GitHub: the App's installation that holds the config repository.",
		Consequence: "Only what this installation may touch can be touched.",
	}, {
		Name: "forge.app_key_file", Unset: "none", Example: "/run/secrets/github-app.pem", field: func(c *Server) any { return &c.Forge.AppKeyFile }, private: true,
		Means:       "GitHub: PEM file of the App's private key.",
		Consequence: "It is read for each new token.",
		check:       func(c *Server) error { return readable(c.Forge.AppKeyFile) },
	}, {
		Name: "forge.webhook_secret_file", Unset: "no webhook is taken", Example: "/run/secrets/webhook", field: func(c *Server) any { return &c.Forge.WebhookSecretFile }, private: true,
		Means:       "File with the secret of the forge's webhook to /hooks/forge, in one line.",
		Consequence: "A message wakes the next look at the repository and nothing else. Without it the address answers 404, and looks come by poll.",
		check:       func(c *Server) error { return readable(c.Forge.WebhookSecretFile) },
	}, {
		Name: "reviews.max_open", Default: "50", field: func(c *Server) any { return &c.Reviews.MaxOpen },
		Means:       "How many reviews may be open at once.",
		Consequence: "What is beyond waits, the oldest and of those the riskiest first; the proposal says so.",
		check: func(c *Server) error {
			if n := c.Reviews.MaxOpen; n < 1 || n > 10_000 {
				return fmt.Errorf("%d is outside 1 to 10000", n)
			}
			return nil
		},
	}, {
		Name: "reviews.group_by", Default: "service", field: func(c *Server) any { return &c.Reviews.GroupBy },
		Means:       "What shares a review: service (each has its own) or team (all services whose first owner is the same).",
		Consequence: "With team, merging or closing the review on git or the forge decides on all of them; RLC's pages decide on each. Services without owners keep reviews of their own.",
		check:       func(c *Server) error { return oneOf(c.Reviews.GroupBy, "service", "team") },
	}, {
		Name: "reviews.labels", Default: "rlc", field: func(c *Server) any { return &c.Reviews.Labels },
		Means:       "Labels of every review on a forge, separated by commas; made where they do not exist.",
		Consequence: "Labels that people add stay.",
	}, {
		Name: "reviews.merge_every", Default: "24h", field: func(c *Server) any { return &c.Reviews.MergeEvery }, min: time.Second, max: 30 * 24 * time.Hour,
		Means:       "How long after one proposal of a service merged by itself the next may.",
		Consequence: "Between them the service's newer proposals take each other's place, so that many small steps become one. What people merge is not counted.",
	}, {
		Name: "reviews.signing_key_file", Unset: "commits are not signed", Example: "/run/secrets/signing-key", field: func(c *Server) any { return &c.Reviews.SigningKeyFile }, private: true,
		Means:       "SSH private key that RLC's commits are signed with.",
		Consequence: "It is read for each commit. Give the forge the public key as a signing key, or commits show as unverified.",
		check:       func(c *Server) error { return readable(c.Reviews.SigningKeyFile) },
	}, {
		Name: "reviews.signing_passphrase_file", Unset: "the key has none", Example: "/run/secrets/signing-passphrase", field: func(c *Server) any { return &c.Reviews.SigningPassphraseFile }, private: true,
		Means:       "File with the signing key's passphrase, in one line.",
		Consequence: "It is read for each commit.",
		check:       func(c *Server) error { return readable(c.Reviews.SigningPassphraseFile) },
	}, {
		Name: "oidc.issuer", Unset: "nobody signs in but with the token", Example: "https://login.example.com", field: func(c *Server) any { return &c.OIDC.Issuer },
		Means:       "The OpenID Connect provider that lets people in: its issuer URL, https, or http on loopback.",
		Consequence: "Reading needs a sign-in or a token then, on loopback, too. Its groups say who may act on what. While it is away the server's token still signs in.",
		check: func(c *Server) error {
			if c.OIDC.Issuer == "" {
				return nil
			}
			return firstOf(httpURL(c.OIDC.Issuer), together(c.OIDC.Issuer, c.OIDC.ClientID, "oidc.client_id"), together(c.OIDC.Issuer, c.OIDC.PublicURL, "oidc.public_url"))
		},
	}, {
		Name: "oidc.client_id", Unset: "none", Example: "rlc", field: func(c *Server) any { return &c.OIDC.ClientID },
		Means:       "What the provider knows this server as.",
		Consequence: "A sign-in that was made for another client is refused.",
		check:       func(c *Server) error { return together(c.OIDC.ClientID, c.OIDC.Issuer, "oidc.issuer") },
	}, {
		Name: "oidc.client_secret_file", Unset: "a public client: PKCE alone", Example: "/run/secrets/oidc-client", field: func(c *Server) any { return &c.OIDC.SecretFile }, private: true,
		Means:       "File with the client's secret, in one line.",
		Consequence: "It is read for each sign-in: a new secret counts at once.",
		check: func(c *Server) error {
			return firstOf(readable(c.OIDC.SecretFile), together(c.OIDC.SecretFile, c.OIDC.Issuer, "oidc.issuer"))
		},
	}, {
		Name: "oidc.public_url", Unset: "none", Example: "https://rlc.example.com", field: func(c *Server) any { return &c.OIDC.PublicURL },
		Means:       "Where browsers reach this server; the provider sends them back to its /login/callback.",
		Consequence: "With https cookies are sent over TLS only.",
		check: func(c *Server) error {
			if c.OIDC.PublicURL == "" {
				return nil
			}
			return firstOf(httpURL(c.OIDC.PublicURL), together(c.OIDC.PublicURL, c.OIDC.Issuer, "oidc.issuer"))
		},
	}, {
		Name: "oidc.groups_claim", Default: "groups", field: func(c *Server) any { return &c.OIDC.Groups },
		Means:       "The claim that lists a person's groups, in the ID token and in userinfo.",
		Consequence: "Groups are compared with the owners of services and with roles.admins and roles.oncall, letter by letter.",
	}, {
		Name: "proxy.networks", Unset: "no header is believed", Example: "10.1.0.0/16", field: func(c *Server) any { return &c.Proxy.Networks },
		Means:       "Networks of the proxies that say in a header who asks, separated by commas.",
		Consequence: "Who can connect from there can be anybody: list the proxies and nothing else. The header is ignored from everywhere else. The proxy must remove what clients send under its name.",
		check: func(c *Server) error {
			return firstOf(networks(c.Proxy.Networks), together(c.Proxy.Networks, c.Proxy.UserHeader, "proxy.user_header"))
		},
	}, {
		Name: "proxy.user_header", Unset: "none", Example: "X-Forwarded-User", field: func(c *Server) any { return &c.Proxy.UserHeader },
		Means:       "The header that names the person.",
		Consequence: "The name stands in the history of what it did.",
		check: func(c *Server) error {
			return firstOf(headerText(c.Proxy.UserHeader), together(c.Proxy.UserHeader, c.Proxy.Networks, "proxy.networks"))
		},
	}, {
		Name: "proxy.groups_header", Unset: "people have no groups", Example: "X-Forwarded-Groups", field: func(c *Server) any { return &c.Proxy.GroupsHeader },
		Means:       "The header that lists the person's groups, separated by commas.",
		Consequence: "As oidc.groups_claim.",
		check: func(c *Server) error {
			return firstOf(headerText(c.Proxy.GroupsHeader), together(c.Proxy.GroupsHeader, c.Proxy.UserHeader, "proxy.user_header"))
		},
	}, {
		Name: "roles.admins", Unset: "only the server's token is admin", Example: "platform-admins", field: func(c *Server) any { return &c.Roles.Admins },
		Means:       "Groups, or names of people, that may do everything, separated by commas.",
		Consequence: "Admins make and revoke API tokens.",
	}, {
		Name: "roles.oncall", Unset: "nobody by group", Example: "sre-oncall", field: func(c *Server) any { return &c.Roles.OnCall },
		Means:       "Groups, or names of people, that may act on every service, separated by commas.",
		Consequence: "Everybody else acts on the services whose owners name them or one of their groups.",
	}, {
		Name: "roles.private", Default: "false", field: func(c *Server) any { return &c.Roles.Private },
		Means:       "Whether people see only services of their own and those that one of them calls.",
		Consequence: "Another's service is not found then; lists over all services are for on-call.",
	}, {
		Name: "roles.four_eyes", Default: "false", field: func(c *Server) any { return &c.Roles.FourEyes },
		Means:       "Whether who asked for a run may not accept what it proposes.",
		Consequence: "Somebody else has to. What the schedule proposed anybody accepts who may.",
	}, {
		Name: "loop.controller", Unset: "the page of the drop-ratio loop says so", Example: "http://127.0.0.1:8086/v1/loop", field: func(c *Server) any { return &c.Loop.Controller },
		Means:       "Where enforcer controller answers /v1/loop: the address of its --http.",
		Consequence: "The page /loop asks there for each view. Enforcers join the loop by their own --aggregator, whatever stands here.",
		check: func(c *Server) error {
			if c.Loop.Controller == "" {
				return nil
			}
			return httpURL(c.Loop.Controller)
		},
	}, {
		Name: "log.level", Default: "info", field: func(c *Server) any { return &c.Log.Level },
		Means:       "The least level that is logged, to stderr: debug, info, warn or error.",
		Consequence: "debug says what happens inside, with the names of services and callers; never a secret.",
		check:       func(c *Server) error { return oneOf(c.Log.Level, "debug", "info", "warn", "error") },
	}, {
		Name: "log.format", Default: "text", field: func(c *Server) any { return &c.Log.Format },
		Means:       "text (key=value) or json, one line each.",
		Consequence: "Only what reads the log sees a difference.",
		check:       func(c *Server) error { return oneOf(c.Log.Format, "text", "json") },
	}}, rolloutKeys()...)
}
