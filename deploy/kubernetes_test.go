package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/openrlc/rlc/internal/config"
)

// What follows are the fields of the kinds that the manifests use, by the names
// of Kubernetes' API: a field that is not here is a misspelt one, or wants a
// line. https://kubernetes.io/docs/reference/kubernetes-api/

type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   meta
	// The rest depends on the kind.
	Data                         map[string]string `yaml:"data"`
	Spec                         yaml.Node
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
}

type labels map[string]string

type meta struct {
	Name, Namespace string
	Labels          labels
}

type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

type service struct {
	Selector labels
	Ports    []struct {
		Name, Protocol string
		Port           int
		TargetPort     string `yaml:"targetPort"`
	}
}

type workload struct {
	ServiceName string `yaml:"serviceName"`
	Replicas    int
	Strategy    struct{ Type string }
	Selector    selector
	Template    struct {
		Metadata meta
		Spec     pod
	}
	VolumeClaimTemplates []struct {
		Metadata meta
		Spec     struct {
			AccessModes []string `yaml:"accessModes"`
			Resources   resources
		}
	} `yaml:"volumeClaimTemplates"`
}

type pod struct {
	ServiceAccountName            string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
	TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		RunAsGroup     int                   `yaml:"runAsGroup"`
		FSGroup        int                   `yaml:"fsGroup"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		Secret    *struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
		EmptyDir *struct {
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct{ Name, Value string }
	Ports       []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe    *probe `yaml:"startupProbe"`
	LivenessProbe   *probe `yaml:"livenessProbe"`
	ReadinessProbe  *probe `yaml:"readinessProbe"`
	Resources       resources
	SecurityContext struct {
		RunAsUser                int   `yaml:"runAsUser"`
		RunAsGroup               int   `yaml:"runAsGroup"`
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
	PeriodSeconds    int                         `yaml:"periodSeconds"`
	TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
	FailureThreshold int                         `yaml:"failureThreshold"`
}

type resources struct {
	Requests, Limits map[string]string
}

type policy struct {
	PodSelector selector `yaml:"podSelector"`
	PolicyTypes []string `yaml:"policyTypes"`
	Ingress     []struct {
		From  []peer
		Ports []port
	}
	Egress []struct {
		To    []peer
		Ports []port
	}
}

type peer struct {
	NamespaceSelector *selector              `yaml:"namespaceSelector"`
	PodSelector       *selector              `yaml:"podSelector"`
	IPBlock           *struct{ CIDR string } `yaml:"ipBlock"`
}

type port struct{ Protocol, Port string }

// strict decodes text into v and refuses unknown and doubled fields.
func strict(text []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(v)
}

// into decodes the part of an object that depends on its kind.
func into(t *testing.T, o object, v any) {
	t.Helper()
	text, err := yaml.Marshal(&o.Spec)
	if err == nil {
		err = strict(text, v)
	}
	if err != nil {
		t.Errorf("%s %s: %v", o.Kind, o.Metadata.Name, err)
	}
}

var versions = map[string]string{
	"ServiceAccount": "v1", "ConfigMap": "v1", "Service": "v1",
	"StatefulSet": "apps/v1", "Deployment": "apps/v1", "NetworkPolicy": "networking.k8s.io/v1",
}

func manifests(t *testing.T) map[string][]object {
	t.Helper()
	paths, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("manifests: %v %v", paths, err)
	}
	all := map[string][]object{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		for {
			var o object
			err := d.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if o.APIVersion != versions[o.Kind] || o.Metadata.Name == "" || o.Metadata.Namespace != "rlc" {
				t.Errorf("%s: %s %s %q in %q", path, o.APIVersion, o.Kind, o.Metadata.Name, o.Metadata.Namespace)
			}
			all[o.Kind] = append(all[o.Kind], o)
		}
	}
	return all
}

var (
	quantity = regexp.MustCompile(`^[1-9][0-9]*(m|Mi|Gi)?$`)
	cidr     = regexp.MustCompile(`^[0-9.]+/[0-9]+$`)
)

func TestManifestsHoldTogether(t *testing.T) {
	all := manifests(t)
	named := func(kind, name string) bool {
		return slices.ContainsFunc(all[kind], func(o object) bool { return o.Metadata.Name == name })
	}
	pods := map[string]labels{}    // by workload
	ports := map[string][]string{} // their names, by app label
	const app = "app.kubernetes.io/name"
	for _, o := range append(all["StatefulSet"], all["Deployment"]...) {
		var w workload
		into(t, o, &w)
		name := o.Metadata.Name
		// rlc keeps its records in one volume; enforcers share their counters in Redis.
		if w.Replicas < 1 || o.Kind == "StatefulSet" && w.Replicas != 1 || w.Template.Metadata.Labels[app] != name || w.Selector.MatchLabels[app] != name {
			t.Errorf("%s: %d replicas of %v, selected by %v", name, w.Replicas, w.Template.Metadata.Labels, w.Selector.MatchLabels)
		}
		// README.md says how many there are of the two.
		for of, what := range map[string]string{"rlc": "rlc", "rlc-enforcer": "the enforcer"} {
			said := map[int]string{1: "**One replica of ", 2: "**Two replicas of "}[w.Replicas] + what + ".**"
			if text, err := os.ReadFile("README.md"); name == of && (err != nil || !strings.Contains(string(text), said)) {
				t.Errorf("%s has %d replicas; README.md does not say %q (%v)", name, w.Replicas, said, err)
			}
		}
		if o.Kind == "StatefulSet" && !named("Service", w.ServiceName) {
			t.Errorf("%s: no service %q", name, w.ServiceName)
		}
		volumes := map[string]bool{}
		for _, v := range w.Template.Spec.Volumes {
			volumes[v.Name] = true
			if v.ConfigMap != nil && !named("ConfigMap", v.ConfigMap.Name) {
				t.Errorf("%s: no config map %q", name, v.ConfigMap.Name)
			}
			if v.Secret != nil && v.Secret.DefaultMode != 0o440 {
				t.Errorf("%s: secret %s has mode %o", name, v.Secret.SecretName, v.Secret.DefaultMode)
			}
			if v.EmptyDir != nil && !quantity.MatchString(v.EmptyDir.SizeLimit) {
				t.Errorf("%s: volume %s is without a limit", name, v.Name)
			}
		}
		for _, c := range w.VolumeClaimTemplates {
			volumes[c.Metadata.Name] = true
		}
		pods[name] = w.Template.Metadata.Labels
		ports[name] = checkPod(t, name, w.Template.Spec, volumes)
		if !named("ServiceAccount", w.Template.Spec.ServiceAccountName) {
			t.Errorf("%s: no service account %q", name, w.Template.Spec.ServiceAccountName)
		}
	}
	if len(pods) != 4 {
		t.Errorf("workloads: %v", pods)
	}
	for _, o := range all["Service"] {
		var s service
		into(t, o, &s)
		for _, p := range s.Ports {
			if !slices.Contains(ports[s.Selector[app]], p.TargetPort) {
				t.Errorf("service %s: no port %q in the pods of %v", o.Metadata.Name, p.TargetPort, s.Selector)
			}
		}
	}
	for _, o := range all["NetworkPolicy"] {
		var p policy
		into(t, o, &p)
		target := p.PodSelector.MatchLabels[app]
		if pods[target] == nil || !slices.Equal(p.PolicyTypes, []string{"Ingress", "Egress"}) {
			t.Errorf("policy %s: %v of %q", o.Metadata.Name, p.PolicyTypes, target)
		}
		for _, in := range p.Ingress {
			if len(in.From) == 0 || len(in.Ports) == 0 {
				t.Errorf("policy %s lets everybody in: %+v", o.Metadata.Name, in)
			}
			for _, q := range in.Ports {
				if !slices.Contains(ports[target], q.Port) {
					t.Errorf("policy %s: no port %q", o.Metadata.Name, q.Port)
				}
			}
		}
		for _, out := range p.Egress {
			for _, to := range out.To {
				if to.IPBlock != nil && !cidr.MatchString(to.IPBlock.CIDR) {
					t.Errorf("policy %s: %q", o.Metadata.Name, to.IPBlock.CIDR)
				}
			}
		}
		delete(pods, target)
	}
	if len(pods) > 0 {
		t.Errorf("without a network policy: %v", pods)
	}
}

// checkPod holds a pod to what hardening asks for, and returns its port names.
func checkPod(t *testing.T, name string, p pod, volumes map[string]bool) (ports []string) {
	t.Helper()
	sc := p.SecurityContext
	if !sc.RunAsNonRoot || sc.RunAsUser != 65532 || sc.FSGroup != 65532 || sc.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("%s: %+v", name, sc)
	}
	if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken || p.EnableServiceLinks == nil || *p.EnableServiceLinks {
		t.Errorf("%s: the service account's token or service links are on", name)
	}
	if p.TerminationGracePeriodSeconds < 15 {
		t.Errorf("%s: %d s to stop in, and draining takes ten", name, p.TerminationGracePeriodSeconds)
	}
	for i, c := range p.Containers {
		s := c.SecurityContext
		if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%s/%s: %+v", name, c.Name, s)
		}
		for _, q := range []string{c.Resources.Requests["cpu"], c.Resources.Requests["memory"], c.Resources.Limits["memory"]} {
			if !quantity.MatchString(q) {
				t.Errorf("%s/%s: resources %+v", name, c.Name, c.Resources)
			}
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s/%s: no volume %q", name, c.Name, m.Name)
			}
		}
		for _, q := range c.Ports {
			ports = append(ports, q.Name)
		}
		if i > 0 {
			continue // what follows is about our own
		}
		for path, probe := range map[string]*probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet.Path != path || !slices.Contains(ports, probe.HTTPGet.Port) {
				t.Errorf("%s/%s: probe of %s: %+v", name, c.Name, path, probe)
			}
		}
	}
	return ports
}

// The configuration in the config map is one that rlc serve takes, and its
// paths are those that the pod mounts.
func TestTheConfigMapIsAConfiguration(t *testing.T) {
	maps := manifests(t)["ConfigMap"]
	if len(maps) != 1 {
		t.Fatalf("%d config maps", len(maps))
	}
	file := filepath.Join(t.TempDir(), "rlc.yaml")
	if err := os.WriteFile(file, []byte(maps[0].Data["rlc.yaml"]), 0o644); err != nil {
		t.Fatal(err)
	}
	s := config.Load(config.Input{File: file, Env: func(string) (string, bool) { return "", false }})
	for _, p := range s.Problems {
		// The secrets are mounted there, in the cluster.
		if !strings.Contains(p.Message, "open /run/secrets/rlc/token: no such file") && !strings.Contains(p.Message, "open /run/secrets/rlc/redis-url: no such file") {
			t.Error(p)
		}
	}
	if c := s.Server; c.Listen != "0.0.0.0:8080" || c.MetricsListen != "0.0.0.0:9090" || c.Data != "/var/lib/rlc" {
		t.Errorf("%+v", c)
	}
}

func TestAMisspeltFieldIsFound(t *testing.T) {
	for _, text := range []string{
		"containers: [{name: a, imgae: b}]",
		"securityContext: {runAsNonroot: true}",
		"containers: [{name: a, name: b}]",
		"terminationGracePeriodSeconds: soon",
	} {
		if err := strict([]byte(text), &pod{}); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}
