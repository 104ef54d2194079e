"""An account: what may be asked of it, and what happens then. Pure.

A command is checked against the state, and the state is the fold of the events. Nothing is ever changed: what turns out
to be wrong is made good by a further event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. ``amount``: what it adds to the balance. ``transfer``: its id, where it belongs to one, and
    ``other``: the account at its other end."""

    type: str
    amount: Decimal = Decimal(0)
    transfer: str | None = None
    other: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """What is asked of an account. ``type``: one of the commands below."""

    type: str
    amount: Decimal = Decimal(0)
    transfer: str | None = None
    other: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The state behind ``version`` events."""

    version: int = 0
    balance: Decimal = Decimal(0)
    is_open: bool = False

    def after(self, event: Event) -> Account:
        """The state behind one more event."""
        is_open = event.type == "Opened" or (self.is_open and event.type != "Closed")
        return replace(self, version=self.version + 1, balance=self.balance + event.amount, is_open=is_open)


class Refused(Exception):
    """The account does not take the command. The text is a sentence for whoever gave it."""


def account_of(events: Iterable[Event]) -> Account:
    """The state behind these events."""
    account = Account()
    for event in events:
        account = account.after(event)
    return account


_EVENTS = {
    "open": ("Opened", 0),
    "deposit": ("Deposited", 1),
    "withdraw": ("Withdrawn", -1),
    "send": ("TransferSent", -1),
    "receive": ("TransferReceived", 1),
    "return": ("TransferReturned", 1),
    "close": ("Closed", 0),
}
"""By command: the event that it leads to, and the sign of its amount."""


def decide(account: Account, command: Command) -> Event:
    """What happens. Refused where the account does not take the command.

    >>> decide(Account(version=1, is_open=True), Command("deposit", Decimal(5))).type
    'Deposited'
    """
    kind, amount = command.type, command.amount
    rules = (
        (kind not in _EVENTS, f"an account knows no {kind}"),
        (kind == "open" and account.version > 0, "the account has been opened before"),
        # Money that comes back is taken, whatever has become of the account.
        (kind not in ("open", "return") and not account.is_open, "the account is not open"),
        (kind == "close" and account.balance != 0, f"the account still has {account.balance}"),
        (kind not in ("open", "close") and amount <= 0, "an amount is more than nothing"),
        (kind in ("withdraw", "send") and account.balance < amount, f"the account has {account.balance} only"),
        (kind == "send" and not command.other, "a transfer needs an account that it goes to"),
    )
    for broken, why in rules:
        if broken:
            raise Refused(why)
    event, sign = _EVENTS[kind]
    return Event(event, sign * amount, command.transfer, command.other)
