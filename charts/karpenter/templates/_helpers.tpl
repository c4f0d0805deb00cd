{{- define "karpenter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "karpenter.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "karpenter.selector" -}}
app.kubernetes.io/name: {{ include "karpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* metadata of an object: call with a dict of root, name and, where they apply, namespace, labels and annotations */}}
{{- define "karpenter.metadata" -}}
{{- include "karpenter.complete" .root -}}
name: {{ .name }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  {{- include "karpenter.selector" .root | nindent 2 }}
  {{- with merge (dict) (.labels | default dict) .root.Values.additionalLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "karpenter.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "karpenter.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "karpenter.image" -}}
{{- with .Values.controller.image -}}
{{- .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* a constraint over pods; where it does not say which, it means the controller's own */}}
{{- define "karpenter.selecting" -}}
{{- $own := dict "matchLabels" (include "karpenter.selector" .root | fromYaml) -}}
{{- if kindIs "invalid" .term.labelSelector -}}
{{- merge (dict "labelSelector" $own) (omit .term "labelSelector") | toYaml -}}
{{- else -}}
{{- toYaml .term -}}
{{- end -}}
{{- end -}}

{{/* one environment variable; false and 0 are values, only nothing and "" are none */}}
{{- define "karpenter.env" -}}
{{- if not (or (kindIs "invalid" .value) (eq (toString .value) "")) }}
- name: {{ .name }}
  value: {{ .value | toString | quote }}
{{- end }}
{{- end -}}

{{/* a ValidatingAdmissionPolicy and its binding */}}
{{- define "karpenter.policy" -}}
{{- $name := printf "%s-%s" (include "karpenter.fullname" .root) .name }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- include "karpenter.metadata" (dict "root" .root "name" $name) | nindent 2 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    {{- with .policy.resource.match }}
    matchPolicy: {{ . }}
    {{- end }}
    resourceRules:
      - apiGroups: [{{ .policy.resource.group | quote }}]
        apiVersions: [{{ .policy.resource.version }}]
        operations: {{ toJson .policy.resource.operations }}
        resources: [{{ .policy.resource.plural }}]
  matchConditions:
    {{- range $condition, $expression := .policy.when }}
    - name: {{ $condition }}
      expression: {{ $expression | quote }}
    {{- end }}
  validations:
    {{- range .policy.rules }}
    - expression: {{ .expression | quote }}
      message: {{ .message | quote }}
      reason: Forbidden
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "karpenter.metadata" (dict "root" .root "name" $name) | nindent 2 }}
spec:
  policyName: {{ $name }}
  validationActions: [{{ .policy.action | default "Deny" }}]
{{- end -}}

{{/* true or false: what a value means that may be a template, a text or missing */}}
{{- define "karpenter.on" -}}
{{- $root := index . 0 -}}{{- $value := index . 1 -}}
{{- if kindIs "invalid" $value -}}false{{- else -}}{{ tpl (toString $value) $root }}{{- end -}}
{{- end -}}

{{/* Name=true,Name=false of names and values that follow the root in a list */}}
{{- define "karpenter.gates" -}}
{{- $root := index . 0 -}}{{- $rest := rest . -}}
{{- range $i, $name := $rest -}}
{{- if eq (mod $i 2) 0 -}}
{{- if $i }},{{ end -}}{{ $name }}={{ include "karpenter.on" (list $root (index $rest (add1 $i | int))) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* what a gate for devices is: its own value, or else that of enableDRA */}}
{{- define "karpenter.device.gate" -}}
{{- $root := index . 0 -}}{{- $value := index . 1 -}}
{{- if kindIs "invalid" $value -}}{{- $value = $root.Values.settings.enableDRA -}}{{- end -}}
{{- include "karpenter.on" (list $root $value) -}}
{{- end -}}

{{/* yes where the devices of pods are planned for */}}
{{- define "karpenter.devices" -}}
{{- $s := .Values.settings -}}{{- $aws := $s.awsFeatureGates | default dict -}}
{{- $gates := list (include "karpenter.device.gate" (list . $aws.draNVIDIAGPU)) (include "karpenter.device.gate" (list . $aws.draEFA)) -}}
{{- $ignored := "true" -}}
{{- if not (kindIs "invalid" $s.ignoreDRARequests) -}}{{- $ignored = tpl (toString $s.ignoreDRARequests) . -}}{{- end -}}
{{- if or (eq $ignored "false") (has "true" $gates) -}}yes{{- end -}}
{{- end -}}

{{/* not empty where kube-scheduler's default spread constraints are told, by a setting or by a variable */}}
{{- define "karpenter.defaultSpread" -}}
{{- if .Values.settings.schedulerConfig -}}yes{{- end -}}
{{- range .Values.controller.env -}}{{- if eq .name "SCHEDULER_CONFIG" -}}yes{{- end -}}{{- end -}}
{{- end -}}

{{/* true where the page listens on another address than one of the pod's own */}}
{{- define "karpenter.uiGuarded" -}}
{{- $host := toString .Values.settings.uiHost -}}
{{- if and .Values.settings.uiPort (not (or (eq $host "localhost" "::1") (hasPrefix "127." $host))) -}}true{{- end -}}
{{- end -}}
