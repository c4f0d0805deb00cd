{{/*
helm upgrade --reuse-values leaves out what this chart's values have and those of the release before do not, as after Karpenter v1. Whatever reads values
that are new says so before it trips over them.
*/}}
{{- define "karpenter.complete" -}}
{{- range list "legacy" "prometheusRule" "dashboards" "networkPolicy" "admissionPolicies" }}
{{- if not (hasKey $.Values .) }}{{ fail (printf "the section %s of the values is missing, as --reuse-values leaves it out where the release was made by another chart: write --reset-then-reuse-values instead, or give all your values with -f" .) }}{{ end }}
{{- end }}
{{- end -}}

{{/*
Helm ignores values that a chart does not know. Values of older charts would so be lost without a word, and the controller would
start without its cluster or its queue. What must be written otherwise is refused here, all of it at once.
*/}}
{{- define "karpenter.checks" -}}
{{- $wrong := list -}}
{{- $v := .Values -}}
{{- $aws := $v.settings.aws | default dict -}}
{{- range $old, $new := dict
  "clusterName" "settings.clusterName"
  "clusterEndpoint" "settings.clusterEndpoint"
  "clusterCABundle" "settings.clusterCABundle"
  "interruptionQueueName" "settings.interruptionQueue"
  "isolatedVPC" "settings.isolatedVPC"
  "vmMemoryOverheadPercent" "settings.vmMemoryOverheadPercent"
  "reservedENIs" "settings.reservedENIs"
}}
{{- if hasKey $aws $old }}{{ $wrong = append $wrong (printf "settings.aws.%s: write %s" $old $new) }}{{ end }}
{{- end }}
{{- $profile := "there is no default instance profile; write spec.instanceProfile, or better spec.role, in each EC2NodeClass" }}
{{- if hasKey $aws "defaultInstanceProfile" }}{{ $wrong = append $wrong (printf "settings.aws.defaultInstanceProfile: %s" $profile) }}{{ end }}
{{- if hasKey ($v.aws | default dict) "defaultInstanceProfile" }}{{ $wrong = append $wrong (printf "aws.defaultInstanceProfile: %s" $profile) }}{{ end }}
{{- with $aws.tags }}{{ $wrong = append $wrong "settings.aws.tags: write spec.tags in each EC2NodeClass" }}{{ end }}
{{- if hasKey $aws "enablePodENI" }}{{ $wrong = append $wrong "settings.aws.enablePodENI: remove it; the resource is always counted" }}{{ end }}
{{- if eq (toString $aws.enableENILimitedPodDensity) "false" }}{{ $wrong = append $wrong "settings.aws.enableENILimitedPodDensity=false: write spec.kubelet.maxPods in each EC2NodeClass" }}{{ end }}
{{- if not (has (toString ($aws.nodeNameConvention | default "ip-name")) (list "ip-name")) }}{{ $wrong = append $wrong "settings.aws.nodeNameConvention: remove it; nodes are found by their provider ID, whatever their name" }}{{ end }}
{{- if or $aws.assumeRoleARN $v.settings.assumeRoleARN }}{{ $wrong = append $wrong "settings.assumeRoleARN: give the role to the service account, by serviceAccount.annotations or pod identity" }}{{ end }}
{{- range $key := list "clusterName" "clusterEndpoint" }}
{{- if get $v $key }}{{ $wrong = append $wrong (printf "%s: write settings.%s" $key $key) }}{{ end }}
{{- end }}
{{- range $old, $new := dict
  "logLevel" "logLevel"
  "outputPaths" "logOutputPaths"
  "errorOutputPaths" "logErrorOutputPaths"
  "batchMaxDuration" "settings.batchMaxDuration"
  "batchIdleDuration" "settings.batchIdleDuration"
}}
{{- if get $v.controller $old }}{{ $wrong = append $wrong (printf "controller.%s: write %s" $old $new) }}{{ end }}
{{- end }}
{{- if ($v.logConfig | default dict).enabled }}{{ $wrong = append $wrong "logConfig: write logLevel, logOutputPaths and logErrorOutputPaths" }}{{ end }}
{{- if eq (toString $v.logEncoding) "console" }}{{ $wrong = append $wrong "logEncoding=console: remove it; the log is JSON" }}{{ end }}
{{- $gates := $v.settings.featureGates | default dict }}
{{- range $key := list "drift" "driftEnabled" }}
{{- if eq (toString (get $gates $key)) "false" }}{{ $wrong = append $wrong (printf "settings.featureGates.%s=false: drift cannot be switched off; give each NodePool a budget of nodes \"0\" with the reason Drifted" $key) }}{{ end }}
{{- end }}
{{- if eq (include "karpenter.on" (list $ $v.settings.enableDRA)) "true" }}
{{- range $path, $contrary := dict "ignoreDRARequests" (list $v.settings.ignoreDRARequests "true") "awsFeatureGates.draNVIDIAGPU" (list ($v.settings.awsFeatureGates | default dict).draNVIDIAGPU "false") "awsFeatureGates.draEFA" (list ($v.settings.awsFeatureGates | default dict).draEFA "false") }}
{{- if and (not (kindIs "invalid" (first $contrary))) (eq (include "karpenter.on" (list $ (first $contrary))) (last $contrary)) }}{{ $wrong = append $wrong (printf "settings.%s=%s: settings.enableDRA=true says the contrary; leave one of them out" $path (last $contrary)) }}{{ end }}
{{- end }}
{{- end }}
{{- if and (eq (include "karpenter.on" (list $ $v.settings.legacyNodeRepair)) "true") (eq (include "karpenter.on" (list $ $gates.terminateFirstRepair)) "true") }}{{ $wrong = append $wrong "settings.legacyNodeRepair=true: it never waits for a replacement; leave out settings.featureGates.terminateFirstRepair" }}{{ end }}
{{- if and $v.settings.importCommitments (ne (include "karpenter.on" (list $ $gates.commitmentDiscounts)) "true") }}{{ $wrong = append $wrong "settings.importCommitments: write settings.featureGates.commitmentDiscounts: true too" }}{{ end }}
{{- with $v.settings.vmMemoryOverheadPercent }}
{{- if ge (float64 .) 1.0 }}{{ $wrong = append $wrong (printf "settings.vmMemoryOverheadPercent=%v: it is a share, so that 7.5 %% is 0.075" .) }}{{ end }}
{{- end }}
{{- range $e := $v.controller.env }}
{{- if and (eq $e.name "DISABLE_LEADER_ELECTION") (eq (toString $e.value) "true") (gt (int $v.replicas) 1) }}{{ $wrong = append $wrong "controller.env DISABLE_LEADER_ELECTION=true: write replicas: 1, as all of several would act at once" }}{{ end }}
{{- end }}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) }}{{ $wrong = append $wrong "serviceAccount.create=false: write the account's name into serviceAccount.name; every pod that names no account has the namespace's default one, and would have Karpenter's rights" }}{{ end }}
{{- if eq (int $v.controller.metrics.port) (int $v.controller.healthProbe.port) }}{{ $wrong = append $wrong "controller.metrics.port and controller.healthProbe.port: write two ports that differ" }}{{ end }}
{{- if and $v.settings.uiPort (has (int $v.settings.uiPort) (list (int $v.controller.metrics.port) (int $v.controller.healthProbe.port))) }}{{ $wrong = append $wrong "settings.uiPort: write another port than those of metrics and probes" }}{{ end }}
{{- if not $v.controller.image.repository }}{{ $wrong = append $wrong "controller.image.repository is required, as no image of this version is published: --set controller.image.repository=<where yours is>" }}{{ end }}
{{- if contains "public.ecr.aws/karpenter/" $v.controller.image.repository }}{{ $wrong = append $wrong "controller.image.repository: the image there is of another Karpenter, which this chart's rights and settings are not for; write where yours of this version is, and its tag and digest" }}{{ end }}
{{- if not (or $v.settings.clusterName $v.clusterName $aws.clusterName) }}{{ $wrong = append $wrong "settings.clusterName is required: --set settings.clusterName=<the name of your cluster>" }}{{ end }}
{{- if and (ne $v.legacy.v1beta1 "none") (eq (toString ($v.webhook | default dict).enabled) "false") }}{{ $wrong = append $wrong "webhook.enabled=false: v1beta1 is served by a webhook; remove the value, or write legacy.v1beta1: none" }}{{ end }}
{{- if eq $v.legacy.v1beta1 "none" }}
{{- range $name := list "nodepools.karpenter.sh" "nodeclaims.karpenter.sh" "ec2nodeclasses.karpenter.k8s.aws" }}
{{- if has "v1beta1" ((lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name).status | default dict).storedVersions }}{{ $wrong = append $wrong (printf "legacy.v1beta1=none: objects of %s may be stored as v1beta1 and could not be read; write legacy.v1beta1: serve, or drop to rewrite them" $name) }}{{ end }}
{{- end }}
{{- end }}
{{- with $wrong }}{{ fail (printf "these values cannot be used as they are:\n  - %s" (join "\n  - " .)) }}{{ end }}
{{- end -}}
