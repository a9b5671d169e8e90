package helm

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestProvision: the job runs before all other objects, with the operator's secret and no
// object of the release, which does not exist yet. Package cmd/rath tests the flags of its
// command with the golden files.
func TestProvision(t *testing.T) {
	if n := len(of[*batchv1.Job](render(t, minimal(t)))); n != 0 {
		t.Errorf("%d jobs though provisioning is off", n)
	}
	v := cases(t)["full"]
	all := render(t, v)
	job := one[*batchv1.Job](t, all)
	if hook := job.Annotations["helm.sh/hook"]; hook != "pre-install,pre-upgrade" || !strings.Contains(job.Annotations["helm.sh/hook-delete-policy"], "before-hook-creation") {
		t.Errorf("hook %q, %q", hook, job.Annotations["helm.sh/hook-delete-policy"])
	}
	pod := job.Spec.Template.Spec
	if pod.ServiceAccountName != "" || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("service account %q, restart policy %s", pod.ServiceAccountName, pod.RestartPolicy)
	}
	for _, volume := range pod.Volumes {
		if s := volume.Secret; s != nil && s.SecretName != "rath-operator" && s.SecretName != "nats-ca" {
			t.Errorf("it mounts %s", s.SecretName)
		}
	}
	args := pod.Containers[0].Args
	for _, want := range []string{
		"--creds=/etc/rath/nats/operator.creds", "--replicas=3", "--partitions=6",
		"--store-bytes=40Gi", "--keep-results=720h", "--placement-cluster=east", "--placement-tag=ssd", "--level=fsync", "--wait=300s",
		"--monitor=http://nats-2.nats-headless.nats:8222",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	if least := int64(4 * 300); *job.Spec.ActiveDeadlineSeconds <= least || *job.Spec.BackoffLimit != 3 {
		t.Errorf("it ends after %d s, %d retries that wait %d s", *job.Spec.ActiveDeadlineSeconds, *job.Spec.BackoffLimit, least)
	}
	// Nodes never see the operator's secret.
	for _, w := range members(all) {
		for _, volume := range w.spec.Volumes {
			if volume.Secret != nil && volume.Secret.SecretName == "rath-operator" {
				t.Errorf("%s mounts the operator's secret", w.name)
			}
		}
	}
	// A user with a password, and no routers.
	job = one[*batchv1.Job](t, render(t, cases(t)["user"]))
	c := job.Spec.Template.Spec.Containers[0]
	secrets := map[string]string{}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			secrets[e.Name] = e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
		}
	}
	if secrets["NATS_USER"] != "rath-operator/user" || secrets["NATS_PASSWORD"] != "rath-operator/password" {
		t.Errorf("logs in with %v, %q", secrets, c.Args)
	}
	// Without authentication there are no credentials.
	open := with(t, with(t, minimal(t), "provision.enabled", true), "operator.auth.kind", "none")
	if c := one[*batchv1.Job](t, render(t, open)).Spec.Template.Spec.Containers[0]; len(c.VolumeMounts) != 1 || len(c.Env) != 2 {
		t.Errorf("without credentials: %+v", c)
	}
}
