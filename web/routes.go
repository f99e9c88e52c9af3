package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/openrlc/rlc/web/ui"
)

// role is who may use a route.
type role string

// The roles. Whether an actor may act on the very thing, and a viewer see it,
// is said by allow, for every route alike.
const (
	anyone role = "anyone"
	viewer role = "viewer"
	person role = "person" // somebody known by name, whatever it may do
	actor  role = "actor"
	admin  role = "admin"
)

// route is one line of the list of routes.
type route struct {
	method, path string
	role         role
	serve        func(*visit) error
}

// routes is the one list. A GET changes nothing; a POST that changes nothing
// (it computes) is a viewer's. The two hold by test.
func (s *server) routes() []route {
	return []route{
		{"GET", "/healthz", anyone, s.healthz},
		{"GET", "/readyz", anyone, s.readyz},
		{"GET", "/metrics", viewer, s.metrics},
		{"GET", "/static/{version}/{path...}", anyone, s.static},
		{"GET", "/favicon.ico", anyone, s.favicon},
		{"POST", "/hooks/forge", anyone, s.webhook}, // it proves itself
		{"GET", "/login", anyone, s.login},
		{"POST", "/login", anyone, s.signIn},
		{"POST", "/logout", anyone, s.signOut},
		{"GET", "/login/provider", anyone, s.leave},
		{"GET", "/login/callback", anyone, s.comeBack},

		{"GET", "/{$}", viewer, s.overview},
		{"GET", "/overview.json", viewer, s.overviewJSON},
		{"GET", "/overview.csv", viewer, s.overviewCSV},
		{"GET", "/find", viewer, s.find},
		{"GET", "/find.json", viewer, s.findJSON},
		{"GET", "/find.csv", viewer, s.findCSV},
		{"GET", "/scorecard", viewer, s.scorecard},
		{"GET", "/scorecard.json", viewer, s.scorecardJSON},
		{"GET", "/scorecard.csv", viewer, s.scorecardCSV},
		{"GET", "/services", viewer, s.services},
		{"GET", "/services.json", viewer, s.apiServices},
		{"GET", "/services.csv", viewer, s.servicesCSV},
		{"GET", "/import", viewer, s.importForm},
		{"POST", "/import", viewer, s.filled(s.importPreview, s.importForm, page(ui.ImportPreview))}, // it computes
		{"POST", "/import/commit", actor, s.filled(s.formImport, s.importPreview, page(ui.ImportPreview))},
		{"GET", "/services/{service}", viewer, s.service},
		{"GET", "/services/{service}/onboard", viewer, s.onboard},
		{"GET", "/services/{service}/onboard.json", viewer, s.onboardJSON},
		{"GET", "/services/{service}/onboard.csv", viewer, s.onboardCSV},
		{"POST", "/services/{service}/onboard", actor, s.filled(s.formOnboard, s.onboard, page("/services/{service}/onboard"))},
		{"GET", "/services/{service}/shadow", viewer, s.shadow},
		{"GET", "/services/{service}/shadow.json", viewer, s.apiShadow},
		{"GET", "/services/{service}/shadow.csv", viewer, s.shadowCSV},
		{"GET", "/services/{service}/policy", viewer, s.policy},
		{"GET", "/services/{service}/policy.json", viewer, s.policyJSON},
		{"GET", "/services/{service}/export", viewer, s.export},
		{"GET", "/services/{service}/export.yaml", viewer, s.exportYAML},
		{"GET", "/services/{service}/export.json", viewer, s.exportJSON},
		{"GET", "/services/{service}/export.csv", viewer, s.exportCSV},
		{"GET", "/services/{service}/buckets/{bucket}/whatif", viewer, s.quotaWhatIf},
		{"GET", "/services/{service}/buckets/{bucket}/whatif.json", viewer, s.quotaWhatIfJSON},
		{"GET", "/services/{service}/buckets/{bucket}/whatif.csv", viewer, s.quotaWhatIfCSV},
		{"GET", "/services/{service}/whatif", viewer, s.serviceWhatIf},
		{"GET", "/services/{service}/whatif.json", viewer, s.serviceWhatIfJSON},
		{"GET", "/services/{service}/whatif.csv", viewer, s.serviceWhatIfCSV},
		{"GET", "/services/{service}/replay", viewer, s.replay},
		{"GET", "/services/{service}/replay.json", viewer, s.replayJSON},
		{"GET", "/services/{service}/replay.csv", viewer, s.replayCSV},
		{"GET", "/services/{service}/buckets/{bucket}", viewer, s.bucket},
		{"POST", "/services/{service}/buckets/{bucket}/verdicts", actor, s.formVerdict},
		{"POST", "/services/{service}/buckets/{bucket}/episodes", actor, s.filled(s.formEpisode, s.shadow, page("/services/{service}/shadow"))},
		{"GET", "/services/{service}/buckets/{bucket}/promote", viewer, s.promotion},
		{"GET", "/services/{service}/buckets/{bucket}/promote.json", viewer, s.apiChecklist},
		{"GET", "/services/{service}/buckets/{bucket}/promote.csv", viewer, s.checklistCSV},
		{"POST", "/services/{service}/buckets/{bucket}/promote", actor, s.filled(s.formPromote, s.promotion, page("/services/{service}/buckets/{bucket}/promote"))},
		{"POST", "/services/{service}/buckets/{bucket}/demote", actor, s.filled(s.formDemote, s.history, page("/services/{service}/history"))},
		{"GET", "/services/{service}/history", viewer, s.history},
		{"GET", "/services/{service}/history.json", viewer, s.apiHistory},
		{"GET", "/services/{service}/history.csv", viewer, s.historyCSV},
		{"POST", "/services/{service}/rollback", actor, s.filled(s.formRollback, s.history, s.rollbackPage)},
		{"POST", "/services/{service}/pins/{pin}/lift", actor, s.formLiftPin},
		{"POST", "/services/{service}/asks/{id}/answer", actor, s.filled(s.formAnswer, s.service, page("/services/{service}"))},
		{"GET", "/callers/{caller}", viewer, s.caller},
		{"GET", "/why", viewer, s.why},
		{"GET", "/why.json", viewer, s.apiWhy},
		{"GET", "/why.csv", viewer, s.whyCSV},
		{"POST", "/why", person, s.filled(s.formAsk, s.why, askPage)},
		{"GET", "/proposals", viewer, s.listOfProposals},
		{"GET", "/proposals.json", viewer, s.apiProposals},
		{"GET", "/proposals.csv", viewer, s.proposalsCSV},
		{"GET", "/proposals/{id}", viewer, s.proposal},
		{"POST", "/proposals/{id}/accept", actor, s.formAccept},
		{"POST", "/proposals/{id}/reject", actor, s.filled(s.formReject, s.proposal, page("/proposals/{id}"))},
		{"POST", "/proposals/{id}/edit", actor, s.filled(s.formAmend, s.proposal, amendPage)},
		{"GET", "/runs", viewer, s.runs},
		{"GET", "/runs.json", viewer, s.apiRuns},
		{"GET", "/runs.csv", viewer, s.runsCSV},
		{"POST", "/runs", actor, s.formRun},
		{"GET", "/runs/{id}", viewer, s.run},
		{"GET", "/runs/{id}/services.json", viewer, s.apiRunServices},
		{"GET", "/runs/{id}/services.csv", viewer, s.runServicesCSV},
		{"POST", "/follow", actor, s.formFollow},
		{"GET", "/audit", viewer, s.audit},
		{"GET", "/audit.json", viewer, s.apiAudit},
		{"GET", "/audit.csv", viewer, s.auditCSV},
		{"GET", "/settings", viewer, s.settings},
		{"GET", "/settings.json", viewer, s.settingsJSON},
		{"GET", "/settings.csv", viewer, s.settingsCSV},
		{"GET", "/loop", viewer, s.loop},
		{"GET", "/loop.json", viewer, s.apiLoop},
		{"GET", "/loop.csv", viewer, s.loopCSV},
		{"GET", "/emergency", viewer, s.emergency},
		{"GET", "/emergency.json", viewer, s.apiOverrides},
		{"GET", "/emergency.csv", viewer, s.emergencyCSV},
		{"POST", "/emergency", actor, s.filled(s.formOverride, s.emergency, page(ui.EmergencyForm))},
		{"POST", "/emergency/{id}/extend", actor, s.formExtend},
		{"POST", "/emergency/{id}/end", actor, s.formEnd},
		{"POST", "/emergency/{id}/keep", actor, s.formKeep},
		{"POST", "/switches/{switch}", actor, s.filled(s.formSwitch, s.emergency, page("/emergency"))},

		{"GET", "/api/openapi.json", viewer, s.openAPI},
		{"GET", "/api/v1/services", viewer, s.apiServices},
		{"GET", "/api/v1/services/{service}", viewer, s.apiService},
		{"GET", "/api/v1/services/{service}/buckets", viewer, s.apiBuckets},
		{"GET", "/api/v1/services/{service}/buckets/{bucket}", viewer, s.apiBucket},
		{"GET", "/api/v1/services/{service}/shadow", viewer, s.apiShadow},
		{"GET", "/api/v1/services/{service}/buckets/{bucket}/promote", viewer, s.apiChecklist},
		{"POST", "/api/v1/services/{service}/buckets/{bucket}/promote", actor, s.apiPromote},
		{"POST", "/api/v1/services/{service}/buckets/{bucket}/demote", actor, s.apiDemote},
		{"GET", "/api/v1/services/{service}/history", viewer, s.apiHistory},
		{"POST", "/api/v1/services/{service}/deploys", actor, s.apiDeploy},
		{"POST", "/api/v1/services/{service}/rollback", actor, s.apiRollback},
		{"DELETE", "/api/v1/services/{service}/pins/{pin}", actor, s.apiLiftPin},
		{"GET", "/api/v1/proposals", viewer, s.apiProposals},
		{"GET", "/api/v1/proposals/{id}", viewer, s.apiProposal},
		{"POST", "/api/v1/proposals/{id}/accept", actor, s.apiAccept},
		{"POST", "/api/v1/proposals/{id}/reject", actor, s.apiReject},
		{"POST", "/api/v1/proposals/{id}/edit", actor, s.apiAmend},
		{"GET", "/api/v1/runs", viewer, s.apiRuns},
		{"POST", "/api/v1/runs", actor, s.apiAskRun},
		{"GET", "/api/v1/runs/{id}", viewer, s.apiRun},
		{"GET", "/api/v1/runs/{id}/services", viewer, s.apiRunServices},
		{"POST", "/api/v1/plan", viewer, s.apiPlan},
		{"POST", "/api/v1/backtest", viewer, s.apiBacktest},
		{"POST", "/api/v1/replay", viewer, s.apiReplay},
		{"GET", "/api/v1/why", viewer, s.apiWhy},
		{"GET", "/api/v1/snapshot", viewer, s.apiSnapshot},
		{"POST", "/api/v1/follow", actor, s.apiFollow},
		{"GET", "/api/v1/verdicts", viewer, s.apiVerdicts},
		{"POST", "/api/v1/verdicts", actor, s.apiSetVerdict},
		{"GET", "/api/v1/audit", viewer, s.apiAudit},
		{"GET", "/api/v1/tokens", admin, s.apiTokens},
		{"POST", "/api/v1/tokens", admin, s.apiCreateToken},
		{"DELETE", "/api/v1/tokens/{id}", admin, s.apiRevokeToken},
		{"POST", "/api/v1/sign-in-codes", admin, s.apiOnce},
		{"GET", "/api/v1/loop", viewer, s.apiLoop},
		{"GET", "/api/v1/overrides", viewer, s.apiOverrides},
		{"POST", "/api/v1/overrides", actor, s.apiSetOverride},
		{"DELETE", "/api/v1/overrides/{id}", actor, s.apiEndOverride},
		{"POST", "/api/v1/overrides/{id}/extend", actor, s.apiExtendOverride},
		{"POST", "/api/v1/overrides/{id}/keep", actor, s.apiKeepOverride},
		{"GET", "/api/v1/switches", viewer, s.apiSwitches},
		{"POST", "/api/v1/switches/{switch}", actor, s.apiSetSwitch},
	}
}

// serve carries a request through identity, role, limits and errors to its
// handler.
func (s *server) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		r = r.WithContext(ctx)
		s.settle(ctx)
		v := &visit{w: w, r: r, who: s.identify(r)}
		s.prefer(v)
		limit := int64(64 << 10)
		if strings.HasPrefix(route.path, "/api/") || strings.HasPrefix(route.path, "/hooks/") {
			limit = 1 << 20
		}
		if strings.HasPrefix(route.path, "/import") {
			limit = mostImportForm
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		v.r = r
		if err := s.admit(v, route); err != nil {
			s.fail(v, err)
			return
		}
		if r.Context().Value(unreadable{}) != nil {
			s.fail(v, invalid("The address cannot be read: after the ? a %% stands before two hexadecimal digits, and a semicolon is written %%3B."))
			return
		}
		if err := s.allow(v, route); err != nil {
			s.fail(v, err)
			return
		}
		if err := route.serve(v); err != nil {
			s.fail(v, err)
		}
	})
}

// unrouted answers what no route serves: 405 where another method would, else
// 404.
func (s *server) unrouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	v := &visit{w: w, r: r, who: s.identify(r)}
	s.prefer(v)
	var others []string
	for _, method := range []string{"GET", "POST", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" && method != r.Method {
			others = append(others, method)
		}
	}
	if len(others) > 0 {
		w.Header().Set("Allow", strings.Join(others, ", "))
		s.fail(v, fault{status: http.StatusMethodNotAllowed, detail: "This address answers " + strings.Join(others, " and ") + " only."})
		return
	}
	s.fail(v, fault{status: http.StatusNotFound, detail: "There is no page at this address."})
}

func (s *server) healthz(v *visit) error {
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := v.w.Write([]byte("ok\n"))
	return err
}

// readyz says ready or not to anyone, and why to a viewer.
func (s *server) readyz(v *visit) error {
	v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	reasons := s.Status.Ready()
	if len(reasons) == 0 {
		_, err := v.w.Write([]byte("ready\n"))
		return err
	}
	v.w.WriteHeader(http.StatusServiceUnavailable)
	text := "not ready\n"
	if v.who.role != anyone {
		text += strings.Join(reasons, "\n") + "\n"
	}
	_, err := v.w.Write([]byte(text))
	return err
}

func (s *server) metrics(v *visit) error {
	if s.Metrics == nil {
		return fault{status: http.StatusNotFound, detail: "This server keeps no metrics."}
	}
	s.Metrics.ServeHTTP(v.w, v.r)
	return nil
}
