{{/* Two variables of one name in a container are refused by a server-side apply: what is given in controller.env stands alone. */}}
{{- define "karpenter.environment" -}}
{{- $given := .Values.controller.env | default list -}}
{{- $names := list -}}
{{- range $given }}{{ $names = append $names .name }}{{ end -}}
{{- $all := list -}}
{{- range include "karpenter.environment.settings" . | fromYamlArray }}
{{- if not (has .name $names) }}{{ $all = append $all . }}{{ end }}
{{- end }}
{{- toYaml (concat $all $given) }}
{{- end -}}

{{- define "karpenter.environment.settings" -}}
{{- $s := .Values.settings -}}
- name: KUBERNETES_MIN_VERSION
  value: 1.19.0-0
- name: KARPENTER_SERVICE
  value: {{ include "karpenter.fullname" . }}
- name: METRICS_PORT
  value: {{ .Values.controller.metrics.port | quote }}
- name: HEALTH_PROBE_PORT
  value: {{ .Values.controller.healthProbe.port | quote }}
{{- if .Values.settings.uiPort }}
- name: UI_PORT
  value: {{ .Values.settings.uiPort | quote }}
- name: UI_HOST
  value: {{ .Values.settings.uiHost | quote }}
{{- end }}
{{- if ne .Values.legacy.v1beta1 "none" }}
- name: V1BETA1
  value: {{ .Values.legacy.v1beta1 | quote }}
- name: WEBHOOK_PORT
  value: {{ .Values.legacy.webhookPort | quote }}
{{- end }}
{{- if ne .Values.legacy.provisioners "ignore" }}
- name: PROVISIONERS
  value: {{ .Values.legacy.provisioners | quote }}
{{- end }}
- name: SYSTEM_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: 1m
      resource: requests.cpu
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .Values.controller.containerName }}
      divisor: "0"
      resource: limits.memory
{{- include "karpenter.env" (dict "name" "LOG_LEVEL" "value" .Values.logLevel) }}
{{- include "karpenter.env" (dict "name" "LOG_OUTPUT_PATHS" "value" (join "," .Values.logOutputPaths)) }}
{{- include "karpenter.env" (dict "name" "LOG_ERROR_OUTPUT_PATHS" "value" (join "," .Values.logErrorOutputPaths)) }}
- name: CLUSTER_NAME
  value: {{ tpl (toString $s.clusterName) . | quote }}
{{- range $setting := list
  (dict "name" "BATCH_MAX_DURATION" "value" $s.batchMaxDuration)
  (dict "name" "BATCH_IDLE_DURATION" "value" $s.batchIdleDuration)
  (dict "name" "CLUSTER_CA_BUNDLE" "value" $s.clusterCABundle)
  (dict "name" "CLUSTER_ENDPOINT" "value" $s.clusterEndpoint)
  (dict "name" "ISOLATED_VPC" "value" $s.isolatedVPC)
  (dict "name" "PRICE_FILE" "value" $s.priceFile)
  (dict "name" "EKS_CONTROL_PLANE" "value" $s.eksControlPlane)
  (dict "name" "VM_MEMORY_OVERHEAD_PERCENT" "value" $s.vmMemoryOverheadPercent)
  (dict "name" "INTERRUPTION_QUEUE" "value" $s.interruptionQueue)
  (dict "name" "REPLACE_ON_REBALANCE" "value" $s.replaceOnRebalance)
  (dict "name" "ENABLE_ZONAL_SHIFT" "value" $s.enableZonalShift)
  (dict "name" "RESERVED_ENIS" "value" $s.reservedENIs)
  (dict "name" "ASSUME_REQUESTS" "value" $s.assumeRequests)
  (dict "name" "SPOT_TYPES" "value" $s.spotTypes)
  (dict "name" "NODE_PRICE" "value" $s.nodePrice)
  (dict "name" "INTERRUPTION_COST" "value" $s.interruptionCost)
  (dict "name" "BREAKER_PERCENT" "value" $s.breakerPercent)
  (dict "name" "BREAKER_WINDOW" "value" $s.breakerWindow)
  (dict "name" "BREAKER_PAUSE" "value" $s.breakerPause)
  (dict "name" "JOURNAL_DIR" "value" $s.journalDir)
  (dict "name" "HISTORY_CONFIG_MAP" "value" (ternary (printf "%s-history" (include "karpenter.fullname" .)) "" (eq (include "karpenter.on" (list $ $s.keepHistory)) "true")))
  (dict "name" "LEDGER_CONFIG_MAPS" "value" (ternary (printf "%s-ledger" (include "karpenter.fullname" .)) nil (eq (include "karpenter.on" (list $ $s.ledger)) "true")))
  (dict "name" "LEDGER_LABELS" "value" (ternary $s.ledgerLabels nil (ne (toString $s.ledgerLabels) "")))
  (dict "name" "OPENCOST_METRICS" "value" (ternary "true" nil (eq (include "karpenter.on" (list $ $s.openCostMetrics)) "true")))
  (dict "name" "RECORD_DIR" "value" $s.recordDir)
  (dict "name" "SCENARIO_FOLDER" "value" $s.scenarioFolder)
  (dict "name" "IGNORE_DRA_REQUESTS" "value" (eq (include "karpenter.devices" .) "" | toString))
  (dict "name" "METRICS_AUTHENTICATION" "value" $s.metricsAuthentication)
  (dict "name" "DISABLE_CLUSTER_STATE_OBSERVABILITY" "value" $s.disableClusterStateObservability)
  (dict "name" "HISTORIC_METRICS" "value" $s.historicMetrics)
  (dict "name" "ALL_OFFERING_METRICS" "value" $s.allOfferingMetrics)
  (dict "name" "DISABLE_DRY_RUN" "value" $s.disableDryRun)
  (dict "name" "IMPORT_COMMITMENTS" "value" ($s.importCommitments | default nil))
  (dict "name" "FORESIGHT" "value" $s.foresight)
  (dict "name" "LEARN_QUANTILE" "value" $s.learnQuantile)
  (dict "name" "NOMINATION_HINTS" "value" $s.nominationHints)
  (dict "name" "HOLD_TAINT_UNTIL_READY" "value" $s.holdTaintUntilReady)
  (dict "name" "AMI_REFRESH_INTERVAL" "value" $s.amiRefreshInterval)
  (dict "name" "SUBNET_REFRESH_INTERVAL" "value" $s.subnetRefreshInterval)
  (dict "name" "SECURITY_GROUP_REFRESH_INTERVAL" "value" $s.securityGroupRefreshInterval)
}}
{{- if not (kindIs "invalid" .value) }}
{{- include "karpenter.env" (dict "name" .name "value" (tpl (toString .value) $)) }}
{{- end }}
{{- end }}
{{- include "karpenter.env" (dict "name" "PREFERENCE_POLICY" "value" $s.preferencePolicy) }}
{{- include "karpenter.env" (dict "name" "MIN_VALUES_POLICY" "value" $s.minValuesPolicy) }}
{{- with $s.schedulerConfig }}
- name: SCHEDULER_CONFIG
  value: {{ kindIs "string" . | ternary . (toJson .) | quote }}
{{- end }}
{{- if eq (include "karpenter.on" (list . $s.legacyNodeRepair)) "true" }}
- name: LEGACY_NODE_REPAIR
  value: "true"
{{- end }}
{{- if eq (toString .Values.surge.enabled) "true" }}
- name: SURGE
  value: "true"
- name: SURGE_SAVING
  value: {{ .Values.surge.saving | quote }}
{{- end }}
{{- with $s.featureGates }}
- name: FEATURE_GATES
  value: {{ printf "%s%s%s%s" (include "karpenter.gates" (list $
    "ReservedCapacity" .reservedCapacity "SpotToSpotConsolidation" .spotToSpotConsolidation "NodeRepair" .nodeRepair
    "NodeOverlay" .nodeOverlay "StaticCapacity" .staticCapacity "CapacityBuffer" .capacityBuffer
    "TerminateFirstDrift" .terminateFirstDrift "TerminateFirstRepair" .terminateFirstRepair
    "PodDeletionCostManagement" .podDeletionCostManagement))
    (eq (include "karpenter.on" (list $ .commitmentDiscounts)) "true" | ternary ",CommitmentDiscounts=true" "")
    (eq (include "karpenter.on" (list $ .capacityQuota)) "true" | ternary ",CapacityQuota=true" "")
    (eq (include "karpenter.on" (list $ .rolloutPolicies)) "true" | ternary ",RolloutPolicies=true" "") | quote }}
{{- end }}
{{- with $s.awsFeatureGates }}
- name: AWS_FEATURE_GATES
  value: {{ include "karpenter.gates" (list $
    "NodeClassCEL" .nodeClassCEL "DRANVIDIAGPU" (include "karpenter.device.gate" (list $ .draNVIDIAGPU))
    "DRAEFA" (include "karpenter.device.gate" (list $ .draEFA)) "RebootForRepair" .rebootForRepair) | quote }}
{{- end }}
{{- end -}}
