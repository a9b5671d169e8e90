package kubernetes

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/sandbox"
)

// The labels of pods.
const (
	labelName  = "app.kubernetes.io/name" // nameValue
	nameValue  = "rath-sandbox"           // selected by a NetworkPolicy
	labelOwner = "rath/owner"             // the owner of the lease, as a digest
	labelEpoch = "rath/epoch"
	labelNode  = "rath/node"
)

const (
	// mostSeconds ends an abandoned pod.
	mostSeconds = 24 * 60 * 60
	// tmpSize bounds the temporary files of a sandbox without a limit of memory.
	tmpSize = 512 << 20
	// workspaceSize bounds the workspace of a sandbox without a limit of disk.
	workspaceSize = 16 << 30
	// programSize bounds the volume of this program.
	programSize = 1 << 30
	// daemonMemory is the memory request of a pod without a limit of memory.
	daemonMemory = 64 << 20
)

// request describes a pod to create.
type request struct {
	image    string
	limits   sandbox.Limits
	overhead int64 // memory of the daemon, in addition to limits.Memory
	owner    string
	epoch    uint64
}

// podName returns a new name with the pod's owner and epoch.
func (r request) podName() string {
	tail := strings.ToLower(rand.Text()[:12])
	if r.owner == "" {
		return "rath-sandbox-" + tail
	}
	return fmt.Sprintf("rath-sandbox-%s-%d-%s", ownerLabel(r.owner), r.epoch, tail)
}

// ownerLabel encodes an owner as the value of a label.
func ownerLabel(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:8])
}

// noLabel matches the characters that a label cannot contain.
var noLabel = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

func labelValue(s string) string {
	s = noLabel.ReplaceAllString(s, "-")
	return strings.Trim(s[:min(len(s), 63)], "-_.")
}

// pod describes a pod.
func (b *driver) pod(name, secret, program string, r request) object {
	labels := object{labelName: nameValue, "app.kubernetes.io/managed-by": "rath"}
	if r.owner != "" {
		labels[labelOwner], labels[labelEpoch] = ownerLabel(r.owner), strconv.FormatUint(r.epoch, 10)
	}
	if node := labelValue(b.o.Holder); node != "" {
		labels[labelNode] = node
	}
	bare := object{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
		"capabilities": object{"drop": []string{"ALL"}},
	}
	mount := func(name, at string, readOnly bool) object {
		return object{"name": name, "mountPath": at, "readOnly": readOnly}
	}
	empty := func(name string, size int64, medium string) object {
		return object{"name": name, "emptyDir": object{"sizeLimit": strconv.FormatInt(size, 10), "medium": medium}}
	}
	variable := func(name, value string) object { return object{"name": name, "value": value} }
	workspace := int64(workspaceSize)
	if r.limits.Disk > 0 {
		// The daemon ends a command at the limit; the machine would end the pod.
		workspace = 2*r.limits.Disk + 1<<30
	}
	tmp := int64(tmpSize)
	if r.limits.Memory > 0 {
		tmp = r.limits.Memory / 2
	}
	requests, most := object{"cpu": "10m", "memory": strconv.Itoa(daemonMemory)}, object{}
	if r.limits.Memory > 0 {
		most["memory"] = strconv.FormatInt(r.limits.Memory+r.overhead, 10)
		requests["memory"] = most["memory"]
	}
	if r.limits.CPU > 0 {
		most["cpu"] = strconv.FormatInt(max(1, int64(r.limits.CPU*1000)), 10) + "m"
		if r.limits.CPU < 0.01 {
			requests["cpu"] = most["cpu"]
		}
	}
	spec := object{
		"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false,
		"terminationGracePeriodSeconds": 1, "activeDeadlineSeconds": mostSeconds,
		"securityContext": object{
			"runAsNonRoot": true, "runAsUser": b.o.User, "runAsGroup": b.o.User, "fsGroup": b.o.User,
			"seccompProfile": object{"type": "RuntimeDefault"},
		},
		"initContainers": []object{{
			"name": "program", "image": b.o.NodeImage, "command": execd.InstallCommand(program), "securityContext": bare,
			"volumeMounts": []object{mount("program", execd.InstallDir, false), mount("workspace", execd.VolumeDir, false)},
			"resources":    object{"requests": object{"cpu": "10m", "memory": strconv.Itoa(daemonMemory)}},
		}},
		"containers": []object{{
			"name": "sandbox", "image": r.image, "command": execd.PodCommand(), "securityContext": bare,
			"env": []object{
				variable("TMPDIR", execd.StateDir), variable("GOMEMLIMIT", "32MiB"),
				{"name": execd.AddressVariable, "valueFrom": object{"fieldRef": object{"fieldPath": "status.podIP"}}},
				{"name": execd.KeysVariable, "valueFrom": object{"secretKeyRef": object{"name": secret, "key": secretKey}}},
			},
			"ports": []object{{"name": "daemon", "containerPort": execd.Port}},
			"volumeMounts": []object{
				mount("program", execd.InstallDir, true), mount("state", execd.StateDir, false),
				{"name": "workspace", "mountPath": execd.Workspace, "subPath": execd.WorkspacePath},
			},
			"resources": object{"requests": requests, "limits": most},
		}},
		"volumes": []object{empty("program", programSize, ""), empty("state", tmp, "Memory"), empty("workspace", workspace, "")},
	}
	if b.o.RuntimeClass != "" {
		spec["runtimeClassName"] = b.o.RuntimeClass
	}
	if len(b.o.PullSecrets) > 0 {
		var names []object
		for _, s := range b.o.PullSecrets {
			names = append(names, object{"name": s})
		}
		spec["imagePullSecrets"] = names
	}
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": labels}, "spec": spec}
}

// secretKey is the key of the daemon's end of the keys in its secret.
const secretKey = "keys"

// secret describes the secret of a pod, which is deleted with its owner.
func secret(name string, owner object, keys []byte) object {
	return object{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true, "data": object{secretKey: keys},
		"metadata": object{
			"name": name, "labels": object{labelName: nameValue, "app.kubernetes.io/managed-by": "rath"},
			"ownerReferences": []object{owner},
		},
	}
}
