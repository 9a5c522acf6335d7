{{- define "kubenexus.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "kubenexus.fullname" -}}
{{- $name := include "kubenexus.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* dict "root" $ "component" "webhook" */ -}}
{{- define "kubenexus.selector" -}}
app.kubernetes.io/name: {{ include "kubenexus.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kubenexus.labels" -}}
{{ include "kubenexus.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kubenexus
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Labels and annotations of an object. With "hook", it is one; with "annotations", these as well. */ -}}
{{- define "kubenexus.metadata" -}}
labels:
  {{- include "kubenexus.labels" . | nindent 2 }}
{{- $annotations := merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
{{- with .hook }}
{{- $_ := set $annotations "helm.sh/hook" . }}
{{- $_ := set $annotations "helm.sh/hook-weight" ($.weight | default 0 | toString) }}
{{- $_ := set $annotations "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kubenexus.configuration" -}}
{{ include "kubenexus.fullname" . }}-webhook
{{- end -}}

{{- define "kubenexus.service" -}}
{{ include "kubenexus.fullname" . }}-webhook
{{- end -}}

{{- define "kubenexus.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "kubenexus.fullname" . }}-scheduler
{{- end -}}

{{- define "kubenexus.secret" -}}
{{- if and (not .Values.certManager.enabled) .Values.certificates.existingSecret -}}
{{ .Values.certificates.existingSecret }}
{{- else -}}
{{ include "kubenexus.fullname" . }}-webhook-tls
{{- end -}}
{{- end -}}

{{- /* Whether a hook makes the certificate: "true" or nothing. */ -}}
{{- define "kubenexus.ownCertificates" -}}
{{- if not (or .Values.certManager.enabled .Values.certificates.existingSecret) -}}true{{- end -}}
{{- end -}}

{{- define "kubenexus.image" -}}
{{- $image := .Values.image -}}
{{- $name := ternary (printf "%s/%s" $image.registry $image.repository) $image.repository (ne $image.registry "") -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $name $image.digest }}
{{- else -}}
{{ printf "%s:%s" $name (default .Chart.AppVersion $image.tag) }}
{{- end -}}
{{- end -}}

{{- /* The class of pods that name none. dict "root" $ "system" "system-node-critical" */ -}}
{{- define "kubenexus.priorityClass" -}}
{{- $own := ternary (include "kubenexus.fullname" .root) .system .root.Values.priorityClass.create -}}
{{- .root.Values.priorityClass.name | default $own -}}
{{- end -}}

{{- define "kubenexus.excluded" -}}
{{- toYaml (append .Values.excludeNamespaces .Release.Namespace | uniq) -}}
{{- end -}}

{{- define "kubenexus.hasPolicyFiles" -}}
{{- if or .Values.policies.existingConfigMap .Values.policies.files (not .Values.policies.library) -}}true{{- end -}}
{{- end -}}

{{- define "kubenexus.policyArgs" -}}
{{- if include "kubenexus.hasPolicyFiles" . -}}
{{- if .Values.policies.library }}
- --policies=/etc/kubenexus/library
{{- end }}
- --policies=/etc/kubenexus/policies
{{- end -}}
{{- end -}}

{{- define "kubenexus.policyVolume" -}}
{{- if include "kubenexus.hasPolicyFiles" . -}}
- name: policies
  configMap:
    name: {{ .Values.policies.existingConfigMap | default (printf "%s-policies" (include "kubenexus.fullname" .)) }}
{{- end -}}
{{- end -}}

{{- define "kubenexus.policyMount" -}}
{{- if include "kubenexus.hasPolicyFiles" . -}}
- name: policies
  mountPath: /etc/kubenexus/policies
  readOnly: true
{{- end -}}
{{- end -}}

{{- /* What all pods have in common. dict "root" $ "component" "scheduler" "account" "..." */ -}}
{{- define "kubenexus.pod" -}}
serviceAccountName: {{ include "kubenexus.fullname" .root }}-{{ .account | default .component }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{- define "kubenexus.container" -}}
image: {{ include "kubenexus.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- end -}}

{{- /* Where the pods of a Deployment go. dict "root" $ "component" "webhook" "values" .Values.webhook */ -}}
{{- define "kubenexus.placing" -}}
priorityClassName: {{ .values.priorityClassName | default (include "kubenexus.priorityClass" (dict "root" .root "system" "system-cluster-critical")) }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if .values.affinity }}
  {{- toYaml .values.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "kubenexus.selector" . | nindent 14 }}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "kubenexus.selector" . | nindent 8 }}
{{- end }}
{{- end -}}

{{- /* A role and its binding. dict "root" $ "component" "x" "kind" "ClusterRole" "rules" [...] ["namespace" "ns" "hook" "weight" "suffix"] */ -}}
{{- define "kubenexus.grant" -}}
{{- $name := printf "%s-%s%s" (include "kubenexus.fullname" .root) .component (.suffix | default "") -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  {{- include "kubenexus.metadata" . | nindent 2 }}
rules:
  {{- toYaml .rules | replace "<configuration>" (include "kubenexus.configuration" .root) | replace "<secret>" (include "kubenexus.secret" .root) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  {{- include "kubenexus.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "kubenexus.fullname" .root }}-{{ .account | default .component }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "kubenexus.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "kubenexus.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "kubenexus.metadata" (merge (dict "annotations" .root.Values.serviceAccount.annotations) .) | nindent 2 }}
{{- end -}}

{{- /* Both webhook configurations, as a list of objects in YAML documents. */ -}}
{{- define "kubenexus.configurations" -}}
{{- $root := . -}}
{{- $known := .Files.Get "files/registration.yaml" | fromYaml -}}
{{- range $kind := list "mutating" "validating" }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {{ title $kind }}WebhookConfiguration
metadata:
  name: {{ include "kubenexus.configuration" $root }}
  {{- $annotations := deepCopy $root.Values.webhook.annotations }}
  {{- if $root.Values.certManager.enabled }}
  {{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s" $root.Release.Namespace (include "kubenexus.service" $root)) }}
  {{- end }}
  {{- include "kubenexus.metadata" (dict "root" $root "component" "webhook" "annotations" $annotations) | nindent 2 }}
webhooks:
  {{- range index $known $kind }}
  - name: {{ .name }}
    admissionReviewVersions: [v1]
    clientConfig:
      service:
        name: {{ include "kubenexus.service" $root }}
        namespace: {{ $root.Release.Namespace }}
        path: {{ .path }}
        port: {{ $root.Values.webhook.service.port }}
      {{- if and (not $root.Values.certManager.enabled) $root.Values.certificates.caBundle (eq $root.Values.webhook.registration "withRelease") }}
      caBundle: {{ $root.Values.certificates.caBundle | b64enc }}
      {{- end }}
    failurePolicy: {{ (index $root.Values.webhook $kind).failurePolicy }}
    matchPolicy: Equivalent
    sideEffects: {{ .sideEffects }}
    timeoutSeconds: {{ $root.Values.webhook.timeoutSeconds }}
    {{- with .reinvocationPolicy }}
    reinvocationPolicy: {{ . }}
    {{- end }}
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values:
            {{- include "kubenexus.excluded" $root | nindent 12 }}
    objectSelector:
      {{- toYaml $root.Values.webhook.objectSelector | nindent 6 }}
    matchConditions:
      {{- toYaml .matchConditions | replace "<scheduler>" (include "kubenexus.schedulerUser" $root) | nindent 6 }}
    {{- $rules := .rules }}
    {{- /* The webhook adds what policies name. Helm would take it for somebody else's field, and fail or undo it. */ -}}
    {{- if and (eq $root.Values.webhook.registration "withRelease") (eq .name "validate.workloads.kubenexus.io") }}
    {{- range (lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" (include "kubenexus.configuration" $root)).webhooks }}
    {{- if eq .name "validate.workloads.kubenexus.io" }}{{ $rules = .rules }}{{ end }}
    {{- end }}
    {{- end }}
    rules:
      {{- toYaml $rules | nindent 6 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* dict "root" $ "component" "probe" "account" "register" "hook" "post-install" "weight" 5 "args" [...] */ -}}
{{- define "kubenexus.hookJob" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "kubenexus.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "kubenexus.metadata" . | nindent 2 }}
spec:
  backoffLimit: 1
  activeDeadlineSeconds: {{ add .root.Values.hooks.timeoutSeconds .root.Values.hooks.timeoutSeconds 60 }}
  template:
    metadata:
      labels:
        {{- include "kubenexus.labels" . | nindent 8 }}
    spec:
      {{- include "kubenexus.pod" . | nindent 6 }}
      restartPolicy: Never
      tolerations:
        {{- toYaml .root.Values.webhook.tolerations | nindent 8 }}
      containers:
        - name: {{ .component }}
          {{- include "kubenexus.container" . | nindent 10 }}
          args:
            {{- toYaml .args | nindent 12 }}
          resources:
            requests: {cpu: 50m, memory: 128Mi}
            limits: {memory: 512Mi}
          {{- if eq .component "register" }}
          volumeMounts:
            - {name: tls, mountPath: /tls, readOnly: true}
            - {name: registration, mountPath: /registration, readOnly: true}
          {{- end }}
      {{- if eq .component "register" }}
      volumes:
        - name: tls
          # Only the authority: the key is nobody's business here.
          secret: {secretName: {{ include "kubenexus.secret" .root }}, items: [{key: ca.crt, path: ca.crt}], optional: {{ ne .root.Values.certificates.caBundle "" }}}
        - name: registration
          configMap: {name: {{ include "kubenexus.fullname" .root }}-registration}
      {{- end }}
{{- end -}}
