"""What people type wrong, and the test that says how each is answered: one sentence, a hint, an exit code."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
APP = "unit/cdc/cli/test_app.py"
READ = "unit/cdc/settings/test_settings.py"
CHECKS = "unit/cdc/checks/test_preflight.py"
FOREIGN = "unit/cdc/process/test_foreign.py"
SETTINGS = "unit/cdc/settings/test_inputs.py"
WRONG = f"{SETTINGS}::test_a_wrong_setting_is_named_and_mended"
VARIABLE = f"{SETTINGS}::test_a_variable_is_blamed_and_not_the_file"
NO_FILE = f"{SETTINGS}::test_a_file_that_is_no_settings_file"
REFUSALS = "integration/cli/test_refusals.py"
AWAY = "integration/cli/test_away.py"
FACTS = "unit/sinks/contract/test_facts.py"
ARGUMENTS = f"{APP}::test_a_command_that_does_not_fit_is_one_sentence_and_a_hint"

INPUTS: list[tuple[str, str, str]] = [
    ("1", "an unknown setting", f"{READ}::test_an_unknown_setting_is_refused_with_the_likely_one"),
    ("2", "an unknown section", WRONG),
    ("3", "a word for a number", WRONG),
    ("4", "a text for a list", WRONG),
    ("5", "a table without its schema", WRONG),
    ("6", "no table", WRONG),
    ("7-9", "a duration without a unit, below 0 or 0", WRONG),
    ("10", "a duration in quotes without a unit", f"{READ}::test_durations_and_sizes_have_units"),
    ("11-12", "a size below 0 or 0", WRONG),
    ("13-14", "a size in another form", f"{READ}::test_durations_and_sizes_have_units"),
    ("15-17", "a name with a space or too long, a slot in capitals", WRONG),
    ("18-19", "a password as itself", f"{READ}::test_a_secret_in_the_clear_is_refused_without_being_shown"),
    ("20", "the name as a variable", f"{SETTINGS}::test_a_byte_order_mark_and_windows_line_ends_do_no_harm"),
    ("21-25", "variables that fit no setting", VARIABLE),
    ("26-27", "a file in Latin-1, a binary file", NO_FILE),
    (
        "28-29",
        "a byte order mark, line ends of Windows",
        f"{SETTINGS}::test_a_byte_order_mark_and_windows_line_ends_do_no_harm",
    ),
    ("30-31", "a folder, no file", f"{READ}::test_a_file_that_cannot_be_used_is_one_sentence"),
    ("32", "YAML", NO_FILE),
    ("33", "a key twice", NO_FILE),
    ("34", "an empty file", WRONG),
    ("35-38", "a sink with a typo, without a kind, of no kind, flat", WRONG),
    ("39", "two faults in one file", f"{SETTINGS}::test_all_faults_of_a_file_are_told_at_once"),
    ("40", "a setting of another kind of sink", WRONG),
    ("41", "an address without a host", "unit/cdc/figures/test_metrics.py::test_an_address_that_is_none"),
    ("42", "a number for a text in a table of settings", WRONG),
    ("43", "Debezium without its section", f"{APP}::test_connect_without_a_debezium_section_names_the_section"),
    ("44", "a password's variable that is not set", f"{READ}::test_a_missing_secret_names_the_variable"),
    ("45-46", "a wrong password", f"{REFUSALS}::test_a_wrong_password"),
    (
        "47",
        "a password's file that is not there",
        f"{CHECKS}::test_a_missing_or_readable_secret_is_named_and_never_shown",
    ),
    ("48", "a password in the dsn", f"{CHECKS}::test_a_password_in_a_connection_string_is_warned_of"),
    (
        "49",
        "a URL with @ and / in its password",
        f"{FOREIGN}::test_h112_a_url_that_parses_otherwise_than_meant_is_refused",
    ),
    ("50", "a password that is a word of ours", f"{FOREIGN}::test_h112_our_words_stay_whatever_the_password_is"),
    ("51-54", "a wrong port, host, database, role", f"{REFUSALS}::test_postgres_that_does_not_answer"),
    ("55", "a dsn that is none", f"{REFUSALS}::test_a_dsn_that_cannot_be_parsed_is_not_quoted"),
    ("56", "a host that is away", f"{AWAY}::test_h109_check_gives_no_advice_on_what_it_did_not_see"),
    (
        "57",
        "the port of a server that is no Postgres",
        "unit/connectors/postgres/server/test_session.py::test_h135_a_server_that_takes_connections_and_is_silent",
    ),
    ("58", "a role that may not replicate", f"{REFUSALS}::test_a_role_that_may_not_replicate"),
    ("59", "a role that may not read", f"{REFUSALS}::test_a_table_that_may_not_be_read"),
    ("60", "a role that may not make the publication", f"{REFUSALS}::test_a_role_that_may_not_make_the_publication"),
    (
        "61-63",
        "a table or schema misspelt",
        "unit/connectors/postgres/server/test_selection.py::test_an_entry_that_meets_nothing_is_refused",
    ),
    ("64", "a table without a key under a wildcard", f"{REFUSALS}::test_h42_a_table_without_a_key"),
    ("65-66", "a wrong port of Kafka, none", "unit/connectors/kafka/test_reach.py::test_an_address_that_is_none"),
    (
        "67-68",
        "the port of a server that is no Kafka",
        "unit/connectors/kafka/test_reach.py::test_h135_another_server_at_the_brokers_address",
    ),
    ("69-70", "Kafka away", f"{AWAY}::test_h109_check_gives_no_advice_on_what_it_did_not_see"),
    ("71", "a wrong port of Redis", f"{AWAY}::test_h109_status_says_nothing_of_what_it_did_not_see"),
    ("72", "the port of a server that is no Redis", f"{FACTS}::test_h135_another_server_at_a_stores_address"),
    (
        "73",
        "http:// for Redis",
        "unit/sinks/contract/test_urls.py::test_a_url_that_is_none_is_one_sentence_with_a_hint",
    ),
    ("74", "a database that Redis has not", "integration/sinks/test_cache.py::test_a_database_that_the_cache_has_not"),
    ("75", "a wrong port of a store", f"{REFUSALS}::test_a_store_that_does_not_answer"),
    (
        "76-77",
        "https:// to http, the port of a server that is no search",
        f"{FACTS}::test_h135_another_server_at_a_stores_address",
    ),
    ("78-79", "a folder that cannot be made, a file", f"{FACTS}::test_a_folder_that_is_a_file_or_cannot_be_written"),
    ("80", "an object store without a login: words of its library", f"{APP}::test_libraries_do_not_log_beside_us"),
    (
        "81-82",
        "a checkpoint folder that cannot be written",
        f"{REFUSALS}::test_a_checkpoint_folder_that_cannot_be_written",
    ),
    (
        "83",
        "a second capture at the same address",
        f"{REFUSALS}::test_h135_a_second_capture_at_the_address_of_the_first",
    ),
    ("84", "a second capture at another one", f"{REFUSALS}::test_h14_a_slot_that_somebody_reads"),
    (
        "85",
        "the same settings from another folder",
        "unit/cdc/settings/test_anchored_paths.py::test_a_path_counts_from_the_files_folder",
    ),
    ("86-94", "an unknown command or option, missing, swapped, bad and extra arguments", ARGUMENTS),
    ("91", "an unknown sink", f"{REFUSALS}::test_an_unknown_sink"),
    ("92", "--config twice", f"{APP}::test_of_two_settings_files_the_last_one_counts"),
    ("94", "a condition that is SQL", "unit/cdc/record/test_condition.py::test_h111_the_grammar_refuses"),
    (
        "95",
        "global options behind the command",
        "unit/cdc/cli/test_arguments.py::test_global_options_stand_before_or_behind_the_command",
    ),
    ("96", "Ctrl-C while modules load", "unit/cdc/cli/test_loading.py::test_h136_ctrl_c_while_modules_load_is_quiet"),
]


def test_each_of_the_96_inputs_is_here() -> None:
    rows = set()
    for row, _, _ in INPUTS:
        first, _, last = row.partition("-")
        rows |= set(range(int(first), int(last or first) + 1))
    assert rows == set(range(1, 97))


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_bytes())
    return {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize(("row", "typed", "test"), INPUTS, ids=[f"{row}: {typed}" for row, typed, _ in INPUTS])
def test_each_wrong_input_has_its_test(row: str, typed: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert name in names_in(file), f"{typed} ({row}): {test} is not there any more"
