{{/* The name of all objects. Pods, hosts and labels add up to 23 characters to it. */}}
{{- define "gpulet.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods of a component: (list . "frontend"). */}}
{{- define "gpulet.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: gpulet
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The labels of a component's objects: (list . "frontend"). */}}
{{- define "gpulet.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpulet.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* "true" for several frontends, or one that others may join; else empty. */}}
{{- define "gpulet.clustered" -}}
{{- if or .Values.etcd.enabled .Values.etcd.endpoints -}}true{{- end -}}
{{- end -}}

{{/* When a frontend's pod is ready: "live" or "serving". */}}
{{- define "gpulet.readiness" -}}
{{- .Values.frontend.readiness | default (ternary "serving" "live" (eq (include "gpulet.clustered" .) "true")) -}}
{{- end -}}

{{/* Values that contradict each other. */}}
{{- define "gpulet.validate" -}}
{{- $clustered := include "gpulet.clustered" . -}}
{{- if and .Values.etcd.enabled .Values.etcd.endpoints -}}
{{- fail "etcd.enabled and etcd.endpoints are both set; remove one" -}}
{{- end -}}
{{- if and (not $clustered) (gt (int .Values.frontend.replicas) 1) -}}
{{- fail "frontend.replicas is more than 1 without an etcd; set etcd.endpoints or etcd.enabled" -}}
{{- end -}}
{{- if and (not $clustered) (or .Values.frontend.config.cluster .Values.frontend.peerTls.secret) -}}
{{- fail "frontend.config.cluster and frontend.peerTls need an etcd; set etcd.endpoints or etcd.enabled" -}}
{{- end -}}
{{- if and (not .Values.etcd.endpoints) (or .Values.etcd.tls.secret .Values.etcd.user .Values.etcd.passwordSecret) -}}
{{- fail "etcd.tls, etcd.user and etcd.passwordSecret are for an etcd of your own; set etcd.endpoints, or remove them" -}}
{{- end -}}
{{- if ne (empty .Values.etcd.user) (empty .Values.etcd.passwordSecret) -}}
{{- fail "etcd.user and etcd.passwordSecret belong together; set both" -}}
{{- end -}}
{{- if and .Values.etcd.tls.clientCertificate (not .Values.etcd.tls.secret) -}}
{{- fail "etcd.tls.clientCertificate needs etcd.tls.secret" -}}
{{- end -}}
{{- if ne (empty .Values.frontend.backendTls.secret) (empty .Values.backend.tls.secret) -}}
{{- fail "frontend.backendTls.secret and backend.tls.secret are the two ends of one connection; set both" -}}
{{- end -}}
{{- $onGpus := 0 -}}
{{- range .Values.backend.devices -}}
{{- if has .partitioning (list "mps" "green" "mig") -}}{{- $onGpus = add1 $onGpus -}}{{- end -}}
{{- end -}}
{{- if and .Values.backend.gpu.enabled (not $onGpus) -}}
{{- fail "backend.gpu.enabled without a GPU in backend.devices; add for example {type: h200, partitioning: mps}" -}}
{{- end -}}
{{- if and $onGpus (not .Values.backend.gpu.enabled) -}}
{{- fail "backend.devices has a GPU, and pods get none; set backend.gpu.enabled" -}}
{{- end -}}
{{- end -}}

{{/* An image: (list . .Values.frontend.image). */}}
{{- define "gpulet.image" -}}
{{- $image := index . 1 -}}
image: {{ printf "%s:%s" $image.repository ($image.tag | default (index . 0).Chart.AppVersion) | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end -}}

{{/* The paths of a certificate, its key and the peers' authority, in JSON. */}}
{{- define "gpulet.mutualTls" -}}
{{- dict "certificate" (printf "%s/tls.crt" .) "key" (printf "%s/tls.key" .) "authority" (printf "%s/ca.crt" .) | toJson -}}
{{- end -}}

{{/* frontend.json. */}}
{{- define "gpulet.frontendConfig" -}}
{{- $secrets := "/etc/gpulet-secrets" -}}
{{- $config := dict
      "listen" "0.0.0.0:7000"
      "backend_listen" "0.0.0.0:7001"
      "http" "0.0.0.0:8000"
      "grpc" "0.0.0.0:8001"
      "metrics" "0.0.0.0:8002"
      "models" (ternary "/etc/gpulet-models/models.json" "/var/lib/gpulet/config/models.json" (not (empty .Values.modelsFile)))
      "profiles" "/var/lib/gpulet/profiles" -}}
{{- with .Values.frontend.tls.secret -}}
{{- $_ := set $config "tls" (dict "certificate" (printf "%s/tls/tls.crt" $secrets) "key" (printf "%s/tls/tls.key" $secrets)) -}}
{{- end -}}
{{- if .Values.frontend.backendTls.secret -}}
{{- $_ := set $config "backend_tls" (include "gpulet.mutualTls" (printf "%s/backend-tls" $secrets) | fromJson) -}}
{{- end -}}
{{- if .Values.frontend.tokens.secret -}}
{{- $tokens := dict -}}
{{- range .Values.frontend.tokens.files -}}
{{- $_ := set $tokens . (printf "%s/tokens/%s" $secrets .) -}}
{{- end -}}
{{- $_ := set $config "tokens" $tokens -}}
{{- end -}}
{{- if include "gpulet.clustered" . -}}
{{- $name := include "gpulet.fullname" . -}}
{{- $cluster := dict
      "name" $name
      "peer_listen" "0.0.0.0:7003"
      "model_store" "/var/cache/gpulet/models"
      "etcd" (ternary (list (printf "%s-etcd:2379" $name)) .Values.etcd.endpoints .Values.etcd.enabled) -}}
{{- if .Values.frontend.peerTls.secret -}}
{{- $_ := set $cluster "peer_tls" (include "gpulet.mutualTls" (printf "%s/peer-tls" $secrets) | fromJson) -}}
{{- end -}}
{{- if .Values.etcd.tls.secret -}}
{{- $tls := include "gpulet.mutualTls" (printf "%s/etcd-tls" $secrets) | fromJson -}}
{{- $_ := set $cluster "tls" (ternary $tls (pick $tls "authority") .Values.etcd.tls.clientCertificate) -}}
{{- end -}}
{{- if .Values.etcd.user -}}
{{- $_ := set $cluster "user" .Values.etcd.user -}}
{{- $_ := set $cluster "password_file" (printf "%s/etcd-password/password" $secrets) -}}
{{- end -}}
{{- $_ := set $config "cluster" $cluster -}}
{{- end -}}
{{- mergeOverwrite $config (deepCopy .Values.frontend.config) | toPrettyJson -}}
{{- end -}}

{{/* backend.json. */}}
{{- define "gpulet.backendConfig" -}}
{{- $name := include "gpulet.fullname" . -}}
{{- $config := dict
      "node" "set-by-the-daemonset"
      "model_store" "/var/lib/gpulet/store/models"
      "devices" .Values.backend.devices -}}
{{- if include "gpulet.clustered" . -}}
{{- $frontends := list -}}
{{- range $i := until (int .Values.frontend.replicas) -}}
{{- $frontends = append $frontends (printf "%s-frontend-%d.%s-control:7001" $name $i $name) -}}
{{- end -}}
{{- $_ := set $config "frontends" $frontends -}}
{{- else -}}
{{- $_ := set $config "frontend" (printf "%s-control:7001" $name) -}}
{{- end -}}
{{- if .Values.backend.tls.secret -}}
{{- $_ := set $config "tls" (include "gpulet.mutualTls" "/etc/gpulet-secrets/tls" | fromJson) -}}
{{- end -}}
{{- mergeOverwrite $config (deepCopy .Values.backend.config) | toPrettyJson -}}
{{- end -}}

{{/* The Secrets of the frontends, in YAML: the folder below /etc/gpulet-secrets and the Secret's name. */}}
{{- define "gpulet.frontendSecrets" -}}
{{- $frontend := .Values.frontend -}}
{{- $secrets := dict "tls" $frontend.tls.secret "backend-tls" $frontend.backendTls.secret "peer-tls" $frontend.peerTls.secret
      "tokens" $frontend.tokens.secret "etcd-tls" .Values.etcd.tls.secret "etcd-password" .Values.etcd.passwordSecret -}}
{{- range $folder, $secret := $secrets -}}
{{- if not $secret -}}{{- $_ := unset $secrets $folder -}}{{- end -}}
{{- end -}}
{{- toYaml $secrets -}}
{{- end -}}
