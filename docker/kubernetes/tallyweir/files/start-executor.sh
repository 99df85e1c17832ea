#!/bin/bash
# Starts one Spark executor from what Spark's Kubernetes scheduler puts into the
# environment. The image has no entrypoint of Spark's, which would do this.
set -eu

readarray -t options < <(env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=/\1 /p' | sort -n \
    | cut -d ' ' -f 2-)
exec "$JAVA_HOME/bin/java" "${options[@]}" \
    -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
