#!/bin/sh
# An executor in a pod, as Spark on Kubernetes asks for one: the variables are Spark's.
set -eu
JAVA_HOME="$(python -c 'from cdc.jvm.java import java_home; print(java_home())')"
jars="$(python -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent / "jars")')"
export JAVA_HOME
# SPARK_JAVA_OPT_0, _1, ...: an option each.
count=0
while eval "option=\${SPARK_JAVA_OPT_$count-}" && [ -n "$option" ]; do
  set -- "$@" "$option"
  count=$((count + 1))
done
[ "${1-}" = executor ] && shift
exec "$JAVA_HOME/bin/java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
