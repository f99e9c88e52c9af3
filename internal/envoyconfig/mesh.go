package envoyconfig

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/openrlc/rlc"
)

var gatewayUnits = []unit{{"Second", 1}, {"Minute", 60}, {"Hour", 3600}, {"Day", 86400}}

// gatewayRules is how many rules a BackendTrafficPolicy takes.
const gatewayRules = 64

// gateway writes a BackendTrafficPolicy of Envoy Gateway for the HTTPRoute of
// the service's name.
func (x *exporter) gateway(o Options) string {
	name := kubeName(x.src.Service.Name)
	var b strings.Builder
	fmt.Fprintf(&b, `# Written by rlc for service %s.
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata:
  name: rlc-%s
spec:
  targetRefs:
    - {group: gateway.networking.k8s.io, kind: HTTPRoute, name: %s}
  rateLimit:
    type: Global
    global:
      rules:
`, scalar(x.src.Service.Name), name, name)
	written := 0
	for _, f := range x.headed(Gateway) {
		n, u, ok := x.counted(f, gatewayUnits)
		if !ok {
			continue
		}
		if written++; written > gatewayRules {
			x.lose("rules", "a policy takes %d rules; those beyond are left out, from bucket %s on", gatewayRules, f.bucket.Name)
			break
		}
		if len(f.on) == 0 {
			fmt.Fprintf(&b, "        - limit: {requests: %d, unit: %s}\n", n, u.name)
			continue
		}
		b.WriteString("        - clientSelectors:\n            - headers:\n")
		for _, c := range f.on {
			kind, value := "type: Exact", ", value: "+scalar(c.value)
			switch {
			case c.value == "":
				kind, value = "type: Distinct", ""
			case c.wide():
				kind, value = "type: RegularExpression", ", value: "+scalar("^"+regexp.QuoteMeta(strings.TrimSuffix(c.value, "*"))+".*")
			}
			fmt.Fprintf(&b, "                - {name: %s, %s%s}\n", scalar(o.header(c.attribute)), kind, value)
		}
		fmt.Fprintf(&b, "          limit: {requests: %d, unit: %s}\n", n, u.name)
	}
	if written == 0 {
		return fmt.Sprintf("# Written by rlc for service %s: no limit that Envoy Gateway can hold.\n", scalar(x.src.Service.Name))
	}
	return b.String()
}

// istio writes an EnvoyFilter with Envoy's local limiter for the workload whose
// label app is the service's name.
func (x *exporter) istio(o Options) string {
	service := x.src.Service.Name
	var actions, descriptors strings.Builder
	sent := map[string]bool{}
	for _, f := range x.headed(Istio) {
		if len(f.on) == 0 {
			x.lose("whole", "bucket %s has no match; left out", f.bucket.Name)
			continue
		}
		var entries, action []string
		for _, c := range f.on {
			if c.wide() {
				x.lose("values", "bucket %s: a counter for each value of %s needs its values written out; left out", f.bucket.Name, c.attribute)
				entries = nil
				break
			}
			entries = append(entries, fmt.Sprintf("{key: %s, value: %s}", scalar(c.attribute), scalar(c.value)))
			action = append(action, fmt.Sprintf("{request_headers: {header_name: %s, descriptor_key: %s}}", scalar(o.header(c.attribute)), scalar(c.attribute)))
		}
		if entries == nil {
			continue
		}
		share := float64(max(o.Instances, 1))
		tokens, seconds, off := perFill(float64(f.limit.Rate) / share)
		if f.limit.Rate == 0 {
			x.lose("zero", "bucket %s admits nothing, which the local limiter cannot say; left out", f.bucket.Name)
			continue
		}
		if off > 0 {
			x.lose("rounding", "bucket %s: %s/s becomes %s in %d s (%.2g %% off)", f.bucket.Name, rlc.Number(float64(f.limit.Rate)/share), rlc.Number(tokens), seconds, 100*off)
		}
		if line := strings.Join(action, ", "); !sent[line] {
			sent[line] = true
			fmt.Fprintf(&actions, "              - actions: [%s]\n", line)
		}
		most := min(max(tokens, int64(float64(f.limit.Burst)/share)), 1<<32-1)
		fmt.Fprintf(&descriptors, "              - entries: [%s]\n                token_bucket: {max_tokens: %d, tokens_per_fill: %d, fill_interval: %ds}\n", strings.Join(entries, ", "), most, tokens, seconds)
	}
	if descriptors.Len() == 0 {
		return fmt.Sprintf("# Written by rlc for service %s: no limit that Istio's local limiter can hold.\n", scalar(service))
	}
	each := "each instance admits the whole limit"
	if o.Instances > 1 {
		each = fmt.Sprintf("each of %d instances admits its share, whatever reaches it", o.Instances)
	}
	x.lose("instances", "the local limiter counts by itself: %s", each)
	return fmt.Sprintf(`# Written by rlc for service %s.
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata:
  name: rlc-%s
spec:
  workloadSelector:
    labels: {app: %s}
  configPatches:
    - applyTo: HTTP_FILTER
      match:
        context: SIDECAR_INBOUND
        listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}
      patch:
        operation: INSERT_BEFORE
        value:
          name: envoy.filters.http.local_ratelimit
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
            stat_prefix: rlc
            token_bucket: {max_tokens: 4294967295, tokens_per_fill: 4294967295, fill_interval: 1s}
            filter_enabled: {default_value: {numerator: 100, denominator: HUNDRED}}
            filter_enforced: {default_value: {numerator: 100, denominator: HUNDRED}}
            rate_limits:
%s            descriptors:
%s`, scalar(service), kubeName(service), scalar(kubeName(service)), actions.String(), descriptors.String())
}
