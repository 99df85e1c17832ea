{{/* Spark's settings for one driver: (list $ "departures"). */}}
{{- define "tallyweir.sparkDefaults" -}}
{{- $top := index . 0 -}}
{{- $driver := printf "%s-driver-%s" (include "tallyweir.name" $top) (index . 1) -}}
{{- $executor := $top.Values.spark.executor -}}
spark.kubernetes.namespace                                   {{ $top.Release.Namespace }}
spark.kubernetes.container.image                             {{ include "tallyweir.image" (list $top $top.Values.image.spark) }}
spark.kubernetes.container.image.pullPolicy                  {{ $top.Values.image.pullPolicy }}
spark.kubernetes.authenticate.executor.serviceAccountName    {{ include "tallyweir.name" $top }}-executor
spark.kubernetes.driver.pod.name                             ${env:POD_NAME}
spark.kubernetes.executor.podNamePrefix                      {{ $driver | replace "-driver-" "-exec-" }}
spark.kubernetes.executor.podTemplateFile                    /etc/spark/executor.yaml
spark.kubernetes.executor.podTemplateContainerName           executor
spark.kubernetes.executor.request.cores                      {{ $executor.requestCores }}
spark.executor.instances                                     {{ $executor.instances }}
spark.executor.cores                                         {{ $executor.cores }}
spark.executor.memory                                        {{ $executor.memory }}
spark.executor.memoryOverhead                                {{ $executor.memoryOverhead }}
spark.driver.host                                            {{ $driver }}.{{ $top.Release.Namespace }}.svc
spark.driver.bindAddress                                     0.0.0.0
spark.driver.port                                            7078
spark.driver.blockManager.port                               7079
spark.blockManager.port                                      7080
# Spark makes a secret for each run and gives it to the executors.
spark.authenticate                                           true
spark.network.crypto.enabled                                 true
{{- end }}

{{/* The executors' pods, which Spark completes: (list $ "departures"). */}}
{{- define "tallyweir.executorPod" -}}
{{- $top := index . 0 -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "tallyweir.labels" (list $top "executor") | nindent 4 }}
    tallyweir/pipeline: {{ index . 1 }}
spec:
  automountServiceAccountToken: false
  {{- include "tallyweir.pullSecrets" $top | nindent 2 }}
  securityContext: {{- include "tallyweir.podSecurity" $top | nindent 4 }}
  containers:
    - name: executor
      image: {{ include "tallyweir.image" (list $top $top.Values.image.spark) }}
      command: [bash, /etc/tallyweir/scripts/start-executor.sh]
      env:
        {{- include "tallyweir.environment" (list $top "home" "databases" "kafka") | nindent 8 }}
      securityContext: {{- include "tallyweir.containerSecurity" $top | nindent 8 }}
      volumeMounts:
        {{- include "tallyweir.secretMount" $top | nindent 8 }}
        - {name: scripts, mountPath: /etc/tallyweir/scripts, readOnly: true}
        - {name: pipelines, mountPath: /etc/tallyweir/pipelines, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    {{- include "tallyweir.secretVolume" $top.Values.secrets.publisher | nindent 4 }}
    - name: scripts
      configMap: {name: {{ include "tallyweir.name" $top }}-scripts}
    - name: pipelines
      configMap: {name: {{ include "tallyweir.name" $top }}-pipelines}
    - name: tmp
      emptyDir: {sizeLimit: {{ $top.Values.driver.scratch }}}
{{- end }}
