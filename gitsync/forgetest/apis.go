package forgetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openrlc/rlc/gitsync/forge"
)

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// body reads a request's JSON; a bare list is what GitHub takes for labels.
func body(r *http.Request) map[string]any {
	var in any
	_ = json.NewDecoder(r.Body).Decode(&in)
	if out, ok := in.(map[string]any); ok {
		return out
	}
	return map[string]any{"labels": in}
}

func text(m map[string]any, key string) string { s, _ := m[key].(string); return s }

func texts(m map[string]any, key string) (out []string) {
	switch all := m[key].(type) {
	case []any:
		for _, x := range all {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
	case string: // GitLab: separated by commas
		out = strings.Split(all, ",")
	}
	return out
}

func numbers(m map[string]any, key string) (out []int64) {
	all, _ := m[key].([]any)
	for _, x := range all {
		if n, ok := x.(float64); ok {
			out = append(out, int64(n))
		}
	}
	return out
}

// page cuts one page of a listing and says in the headers what comes next.
func page[T any](s *Server, w http.ResponseWriter, r *http.Request, sizeName string, all []T) []T {
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get(sizeName))
	at, _ := strconv.Atoi(q.Get("page"))
	if size <= 0 {
		size = 20
	}
	at = max(at, 1)
	from, to := min((at-1)*size, len(all)), min(at*size, len(all))
	if to < len(all) {
		if s.Kind == GitLab {
			w.Header().Set("X-Next-Page", strconv.Itoa(at+1))
		} else {
			q.Set("page", strconv.Itoa(at+1))
			w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, s.URL, r.URL.Path, q.Encode()))
		}
	}
	return all[from:to]
}

// pick lists reviews, the newest first.
func (s *Server) pick(keep func(*review) bool) (out []*review) {
	for _, v := range slices.Backward(s.reviews) {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

func (s *Server) pull(v *review) map[string]any {
	m := map[string]any{
		"id": v.number + 1000, "number": v.number, "title": v.title, "body": v.body, "state": "open",
		"html_url": fmt.Sprintf("%s/%s/pulls/%d", s.URL, Repo, v.number),
		"head":     map[string]any{"ref": v.branch, "label": "acme:" + v.branch, "sha": v.head, "repo_id": 1, "repo": map[string]any{"id": 1, "full_name": Repo}},
		"base":     map[string]any{"ref": "main", "repo_id": 1, "repo": map[string]any{"id": 1, "full_name": Repo}},
	}
	if head := m["head"].(map[string]any); s.Kind == Gitea {
		if head["label"] = v.branch; s.rev(v.branch) == "" {
			head["ref"] = fmt.Sprintf("refs/pull/%d/head", v.number)
		}
	}
	labels := []any{}
	for i, l := range v.labels {
		labels = append(labels, map[string]any{"id": i + 1, "name": l})
	}
	m["labels"] = labels
	if v.state != forge.Open {
		m["state"], m["closed_at"] = "closed", v.at.Format(time.RFC3339)
	}
	if v.state == forge.Merged {
		m["merged"], m["merged_at"] = true, v.at.Format(time.RFC3339)
	}
	return m
}

// whole is what GitHub gives of one review and Gitea of each.
func (s *Server) whole(v *review) map[string]any {
	m := s.pull(v)
	if s.Kind == GitHub && v.state == forge.Open {
		m["mergeable_state"] = "clean"
		switch {
		case s.behind(v):
			m["mergeable_state"] = "behind"
		case s.checks[v.head] == "pending":
			m["mergeable_state"] = "blocked"
		}
	}
	if v.state == forge.Merged {
		m["merged_by"] = map[string]any{"login": v.by}
	}
	return m
}

func (s *Server) github(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/repos/"+Repo+"/")
	if !ok {
		reply(w, 404, map[string]string{"message": "Not Found"})
		return
	}
	s.pulls(w, r, strings.Split(path, "/"), "per_page", s.pull)
}

func (s *Server) gitea(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/repos/"+Repo+"/")
	if !ok {
		reply(w, 404, map[string]string{"message": "Not Found"})
		return
	}
	s.pulls(w, r, strings.Split(path, "/"), "limit", s.whole)
}

// pulls are the endpoints that GitHub and Gitea have alike, with what differs.
func (s *Server) pulls(w http.ResponseWriter, r *http.Request, at []string, sizeName string, show func(*review) map[string]any) {
	var v *review
	if len(at) > 1 {
		n, _ := strconv.ParseInt(at[1], 10, 64)
		v = s.of(n)
	}
	in := map[string]any{}
	if r.Method != http.MethodGet {
		in = body(r)
	}
	call := r.Method + " " + at[0]
	if len(at) > 2 {
		call += "/" + strings.Join(at[2:], "/")
	} else if len(at) == 2 {
		call += "/"
	}
	if v == nil && len(at) > 1 && (at[0] == "pulls" || at[0] == "issues" && at[1] != "comments") {
		reply(w, 404, map[string]string{"message": "Not Found"})
		return
	}
	switch call {
	case "GET pulls":
		state, head := r.URL.Query().Get("state"), r.URL.Query().Get("head")
		all := s.pick(func(v *review) bool {
			return (state == "all" || (v.state == forge.Open) == (state == "open" || state == "")) && (head == "" || head == "acme:"+v.branch)
		})
		out := []any{}
		for _, v := range page(s, w, r, sizeName, all) {
			out = append(out, show(v))
		}
		reply(w, 200, out)
	case "POST pulls":
		made, code := s.open(text(in, "head"), text(in, "title"), text(in, "body"))
		if made == nil {
			if s.Kind == GitHub {
				code = 422
			}
			reply(w, code, map[string]string{"message": "Validation Failed"})
			return
		}
		reply(w, code, s.whole(made))
	case "GET pulls/":
		reply(w, 200, s.whole(v))
	case "PATCH pulls/":
		if t := text(in, "title"); t != "" {
			v.title = t
		}
		if b, ok := in["body"].(string); ok {
			v.body = b
		}
		if text(in, "state") == "closed" && v.state == forge.Open {
			v.state, v.by, v.at = forge.Closed, "rlc-bot", time.Now()
		}
		reply(w, 200, s.whole(v))
	case "GET issues/":
		m := s.pull(v)
		if v.state == forge.Closed && v.by != "" {
			m["closed_by"] = map[string]any{"login": v.by}
		}
		reply(w, 200, m)
	case "POST pulls/requested_reviewers":
		if !s.ask(v, texts(in, "reviewers"), people) || !s.ask(v, texts(in, "team_reviewers"), teams) {
			code := map[Kind]int{GitHub: 422, Gitea: 404}[s.Kind]
			reply(w, code, map[string]string{"message": "Reviews may only be requested from collaborators."})
			return
		}
		reply(w, 201, show(v))
	case "PUT pulls/merge", "POST pulls/merge":
		s.pullMerge(w, v, in)
	default:
		s.rest(w, r, call, at, v, in, sizeName)
	}
}

func (s *Server) pullMerge(w http.ResponseWriter, v *review, in map[string]any) {
	if s.Kind == GitHub && text(in, "merge_method") == "squash" && v.refusedMergeMethod == "squash" {
		reply(w, 405, map[string]string{"message": "Squash merges are not allowed on this repository."})
		return
	}
	commit := text(in, "sha")
	if s.Kind == Gitea {
		commit = text(in, "head_commit_id")
		if later, _ := in["merge_when_checks_succeed"].(bool); later && s.checks[v.head] == "pending" {
			v.ordered = v.head // and whatever is the head by then
			reply(w, 201, map[string]any{})
			return
		}
	}
	if s.Kind == GitHub && s.checks[v.head] == "pending" && v.state == forge.Open {
		reply(w, 405, map[string]string{"message": "Required status check \"build\" is expected."})
		return
	}
	message := "head or base was modified"
	if s.behind(v) {
		message = "not allowed to merge [reason: The head branch is behind the base branch]"
	}
	code := s.merge(v, commit, "rlc-bot")
	reply(w, code, map[string]any{"merged": code == 200, "message": message})
}

// rest are labels, comments and statuses.
func (s *Server) rest(w http.ResponseWriter, r *http.Request, call string, at []string, v *review, in map[string]any, sizeName string) {
	form := func(c comment) map[string]any { return map[string]any{"id": c.id, "body": c.body} }
	switch {
	case call == "GET commits/status":
		out := map[string]any{"state": "", "total_count": 0}
		if c := s.checks[at[1]]; c != "" {
			out["state"], out["total_count"] = c, 1
		}
		reply(w, 200, out)
	case call == "GET labels":
		out := []any{}
		for i, l := range s.labels {
			out = append(out, map[string]any{"id": i + 1, "name": l})
		}
		reply(w, 200, page(s, w, r, sizeName, out))
	case call == "POST labels":
		s.labels = append(s.labels, text(in, "name"))
		reply(w, 201, map[string]any{"id": len(s.labels), "name": text(in, "name")})
	case call == "POST issues/labels":
		names := texts(in, "labels")
		for _, n := range numbers(in, "labels") {
			names = append(names, s.labels[n-1])
		}
		v.label(names)
		reply(w, 200, []any{})
	case call == "GET issues/comments":
		out := []any{}
		for _, c := range v.comments {
			out = append(out, form(c))
		}
		reply(w, 200, page(s, w, r, sizeName, out))
	case call == "POST issues/comments":
		reply(w, 201, form(s.comment(v, text(in, "body"))))
	case r.Method == http.MethodPatch && len(at) == 3 && at[1] == "comments":
		n, _ := strconv.ParseInt(at[2], 10, 64)
		if c, ok := s.change(n, text(in, "body")); ok {
			reply(w, 200, form(c))
			return
		}
		reply(w, 404, map[string]string{"message": "Not Found"})
	case r.Method == http.MethodPost && at[0] == "statuses" && len(at) == 2:
		s.status[at[1]] = append(s.status[at[1]], forge.Status{Name: text(in, "context"), Verdict: forge.Verdict(text(in, "state")), Detail: text(in, "description"), URL: text(in, "target_url")})
		reply(w, 201, map[string]any{"id": 1})
	default:
		reply(w, 404, map[string]string{"message": "no such endpoint: " + r.Method + " " + r.URL.Path})
	}
}

func (s *Server) mr(v *review) map[string]any {
	m := map[string]any{
		"id": v.number + 1000, "iid": v.number, "title": v.title, "description": v.body, "state": "opened", "sha": v.head, "labels": slices.Concat([]string{}, v.labels),
		"source_branch": v.branch, "target_branch": "main", "source_project_id": 1, "target_project_id": 1,
		"web_url": fmt.Sprintf("%s/%s/-/merge_requests/%d", s.URL, Repo, v.number),
	}
	who := map[string]any{"username": v.by}
	switch v.state {
	case forge.Merged:
		m["state"], m["merged_at"], m["merge_user"] = "merged", v.at.Format(time.RFC3339), who
	case forge.Closed:
		m["state"], m["closed_at"] = "closed", v.at.Format(time.RFC3339)
		if v.by != "" {
			m["closed_by"] = who
		}
	}
	return m
}

func (s *Server) gitlab(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v4/users" {
		out := []any{}
		if i := slices.Index(people, r.URL.Query().Get("username")); i >= 0 {
			out = append(out, map[string]any{"id": i + 1, "username": people[i]})
		}
		reply(w, 200, out)
		return
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/v4/projects/"+url.PathEscape(Repo)+"/")
	at := strings.Split(path, "/")
	var v *review
	if len(at) > 1 && at[0] == "merge_requests" {
		n, _ := strconv.ParseInt(at[1], 10, 64)
		if v = s.of(n); v == nil {
			ok = false
		}
	}
	if !ok {
		reply(w, 404, map[string]string{"message": "404 Project Not Found"})
		return
	}
	in := map[string]any{}
	if r.Method != http.MethodGet {
		in = body(r)
	}
	switch {
	case r.Method == "POST" && at[0] == "statuses":
		verdict := forge.Verdict(text(in, "state"))
		if verdict == "failed" {
			verdict = forge.Failure
		}
		s.status[at[1]] = append(s.status[at[1]], forge.Status{Name: text(in, "name"), Verdict: verdict, Detail: text(in, "description"), URL: text(in, "target_url")})
		reply(w, 201, map[string]any{"id": 1})
	case r.Method == "GET" && len(at) == 1:
		state, branch := r.URL.Query().Get("state"), r.URL.Query().Get("source_branch")
		out := []any{}
		for _, v := range page(s, w, r, "per_page", s.pick(func(v *review) bool {
			return (state != "opened" || v.state == forge.Open) && (branch == "" || branch == v.branch)
		})) {
			out = append(out, s.mr(v))
		}
		reply(w, 200, out)
	case r.Method == "POST" && len(at) == 1:
		made, code := s.open(text(in, "source_branch"), text(in, "title"), text(in, "description"))
		if made == nil {
			reply(w, code, map[string]any{"message": []string{"Another open merge request already exists for this source branch"}})
			return
		}
		made.label(texts(in, "labels"))
		for _, n := range numbers(in, "reviewer_ids") {
			made.reviewers = append(made.reviewers, people[n-1])
		}
		reply(w, code, s.mr(made))
	default:
		s.mergeRequest(w, r, at, v, in)
	}
}

func (s *Server) mergeRequest(w http.ResponseWriter, r *http.Request, at []string, v *review, in map[string]any) {
	form := func(c comment) map[string]any { return map[string]any{"id": c.id, "body": c.body} }
	switch {
	case r.Method == "GET" && len(at) == 2:
		m := s.mr(v)
		m["detailed_merge_status"] = "mergeable"
		if s.behind(v) {
			m["detailed_merge_status"] = "need_rebase"
		}
		if c := s.checks[v.head]; c != "" {
			m["head_pipeline"] = map[string]any{"id": 1, "status": strings.Replace(c, "pending", "running", 1)}
		}
		reply(w, 200, m)
	case r.Method == "PUT" && len(at) == 2:
		if t := text(in, "title"); t != "" {
			v.title, v.body = t, text(in, "description")
		}
		v.label(texts(in, "add_labels"))
		if text(in, "state_event") == "close" && v.state == forge.Open {
			v.state, v.by, v.at = forge.Closed, "rlc-bot", time.Now()
		}
		reply(w, 200, s.mr(v))
	case r.Method == "PUT" && at[2] == "merge":
		later, _ := in["auto_merge"].(bool)
		if when, _ := in["merge_when_pipeline_succeeds"].(bool); (later || when) && s.checks[v.head] == "pending" {
			v.ordered = v.head
			reply(w, 200, s.mr(v))
			return
		}
		code := s.merge(v, text(in, "sha"), "rlc-bot")
		reply(w, code, s.mr(v))
	case r.Method == "GET" && at[2] == "notes":
		out := []any{}
		for _, c := range v.comments {
			out = append(out, form(c))
		}
		reply(w, 200, page(s, w, r, "per_page", out))
	case r.Method == "POST" && at[2] == "notes":
		reply(w, 201, form(s.comment(v, text(in, "body"))))
	case r.Method == "PUT" && at[2] == "notes" && len(at) == 4:
		n, _ := strconv.ParseInt(at[3], 10, 64)
		if c, ok := s.change(n, text(in, "body")); ok {
			reply(w, 200, form(c))
			return
		}
		reply(w, 404, map[string]string{"message": "404 Not Found"})
	default:
		reply(w, 404, map[string]string{"message": "no such endpoint: " + r.Method + " " + r.URL.Path})
	}
}
