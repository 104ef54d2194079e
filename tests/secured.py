"""A broker that checks rights: logins by SASL/PLAIN, ACLs by KRaft's own authorizer."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from cdc.jvm.jars import class_path
from cdc.stack.local import free_ports
from cdc.stack.servers import KafkaPart
from cdc.stack.supervised_server import PartFiles
from tests.waiting import wait_until

ADMIN = "admin"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


def password(user: str) -> str:
    return f"{user}-secret"


def login(user: str) -> dict[str, str]:
    """A client's settings, its password among them."""
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password(user),
    }


class SecuredKafka(KafkaPart):
    """:class:`KafkaPart` for these users, none of whom has a right; ``admin`` has all."""

    def __init__(self, folder: Path, users: Iterable[str]) -> None:
        place = PartFiles(folder=folder / "kafka", log=folder / "kafka.log", ports=free_ports())
        super().__init__(place, class_path("kafka"))
        self._users = (ADMIN, *users)

    def _properties(self) -> str:
        users = " ".join(f'user_{user}="{password(user)}"' for user in self._users)
        more = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,BROKER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.broker.plain.sasl.jaas.config": (
                f'{_MODULE} username="{ADMIN}" password="{password(ADMIN)}" {users};'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The controller's own line has no login.
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }
        return super()._properties() + "".join(f"{name}={value}\n" for name, value in more.items())

    def admin(self) -> AdminClient:
        settings: dict[str, Any] = {"bootstrap.servers": self._address, "log_level": 0, **login(ADMIN)}
        return AdminClient(settings)

    def ready(self) -> bool:
        try:
            return len(self.admin().list_topics(timeout=1).brokers) > 0
        except KafkaException:
            return False

    @property
    def address(self) -> str:
        return self._address

    def grant(self, user: str, kind: ResourceType, name: str, rights: Iterable[str]) -> None:
        """Give rights on one topic or group; they count when this returns."""
        made = [binding(user, kind, name, right) for right in rights]
        client = self.admin()  # kept until it has answered
        for future in client.create_acls(made).values():
            future.result(30)

    def apply(self, script: Path) -> None:
        """Run a file of ``kafka-acls`` as the administrator, with Kafka's own tool."""
        folder = self.place.folder
        tool, settings = folder / "kafka-acls", folder / "admin.properties"
        words = " ".join(shlex.quote(word) for word in [*self._java(), "org.apache.kafka.tools.AclCommand"])
        tool.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        tool.chmod(0o700)
        module = f'{_MODULE} username="{ADMIN}" password="{password(ADMIN)}";'
        lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={module}")
        settings.write_text("\n".join(lines), encoding="utf-8")
        environment = {**os.environ, "KAFKA_ACLS": str(tool)}
        done = subprocess.run(
            ["sh", script, self.address, settings], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def given(self) -> set[tuple[str, str, str]]:
        """All rights that were given: user, name of the topic or group, and right."""
        none: Any = None
        """Any name, principal and host."""
        pattern, allow = ResourcePatternType.ANY, AclPermissionType.ANY
        any_of = AclBindingFilter(ResourceType.ANY, none, pattern, none, none, AclOperation.ANY, allow)
        client = self.admin()
        named = {operation: right for right, operation in OPERATIONS.items()}
        return {
            (found.principal.removeprefix("User:"), found.name, named[found.operation])
            for found in client.describe_acls(any_of).result(30)
        }

    def revoke(self, user: str, kind: ResourceType, name: str, right: str) -> None:
        given = binding(user, kind, name, right)
        wanted = AclBindingFilter(
            given.restype, given.name, given.resource_pattern_type, given.principal, given.host, given.operation,
            given.permission_type,
        )  # fmt: skip
        client = self.admin()
        for future in client.delete_acls([wanted]).values():
            future.result(30)


def binding(user: str, kind: ResourceType, name: str, right: str) -> AclBinding:
    """A name that ends with a dot stands for all that begin so."""
    pattern = ResourcePatternType.PREFIXED if name.endswith(".") else ResourcePatternType.LITERAL
    return AclBinding(kind, name, pattern, f"User:{user}", "*", OPERATIONS[right], AclPermissionType.ALLOW)


@contextmanager
def secured_kafka(folder: Path, users: Iterable[str]) -> Iterator[SecuredKafka]:
    """Started, and ended with the body."""
    broker = SecuredKafka(folder, users)
    command = broker.prepare()
    argv = command.account.ending_with_parent(command.argv, death_signal=command.death_signal, parent=os.getpid())
    with broker.place.log.open("ab") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
    try:
        wait_until(broker.ready, 60, describe=lambda: broker.place.log.read_text()[-2000:])
        yield broker
    finally:
        process.kill()
        process.wait(30)
