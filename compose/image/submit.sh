#!/bin/sh
# Submits the sinks to Kubernetes in Spark's cluster mode, and stays as long as their driver runs. SPARK_CONF_DIR is the
# folder of spark-defaults.conf, of cdc.toml and of the pods' templates. Spark hands its files to the driver.
set -eu
JAVA_HOME="$(python -c 'from cdc.jvm.java import java_home; print(java_home())')"
export JAVA_HOME
setting() { sed -n "s/^$1[[:space:]=]\{1,\}//p" "$SPARK_CONF_DIR/spark-defaults.conf" | tail -n 1; }
# Of the driver of this name, whoever submitted it: a second one would write into the same stores.
stop() { spark-submit --kill "$(setting spark.kubernetes.namespace):$(setting spark.kubernetes.driver.pod.name)"; }
stop
spark-submit local:///opt/headrace/sink.py --config /opt/spark/conf/cdc.toml "$@" &
submission=$!
trap stop TERM
# A signal ends a wait, and not what is waited for: the driver's end.
until code=0; wait "$submission" || code=$?; [ "$code" -ne 143 ]; do :; done
exit "$code"
