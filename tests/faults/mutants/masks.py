"""Rules of masked columns: what they cover, and what is done about rows from before a mask."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_NOTES = "tests/unit/cdc/capture/test_mask_notes.py"
_SHAPES = "tests/unit/connectors/postgres/encoding/test_masked_shapes.py"
_VIEWS = "tests/unit/cdc/views/test_masked_views.py"
_ROWS = "tests/unit/connectors/postgres/encoding/test_masked_rows.py"
_RELATIONS = "tests/unit/connectors/session/test_masked_relations.py"
_REGISTRY = "tests/unit/connectors/kafka/test_masked_registry.py"
_REMEDIES = "tests/integration/catalog/test_masked_remedies.py"
_FORGET = "tests/unit/cdc/operate/test_asked_key.py"
_HALVES = "tests/unit/cdc/wire/debezium/test_halves.py"

MUTANTS = (
    Mutant(
        "sweep a table of a later epoch without its masks (H283)", "snapshot/first/first_snapshot.py",
        "masks = masks_of(settings)", "masks = type(masks_of(settings))()",
        "tests/integration/capture/test_mask_covers.py -k h283",
    ),
    Mutant(
        "follow a table with masks whatever a message calls its columns (H284)",
        "connectors/postgres/encoding/masked_rows.py",
        "list(names[: len(columns)]) != columns", "False", _SHAPES,
    ),
    Mutant(
        "follow a table with masks that lost a column (H284)", "connectors/postgres/encoding/masked_rows.py",
        "now is None or numbers.items() <= now.numbers.items()", "True", _SHAPES,
    ),
    Mutant(
        "follow another relation of the name as the one that was passed (H284)",
        "connectors/postgres/encoding/masked_rows.py",
        "passed.oid != oid or ", "", _SHAPES,
    ),
    Mutant(
        "follow a table with masks again before the stream is past its change (H284)",
        "connectors/session/aside_causes.py",
        "        if since_lsn < lsn:\n", "        if False:\n", _REMEDIES,
    ),
    Mutant(
        "take the time of another look for that of this shape (H284)", "connectors/session/aside_causes.py",
        "        if seen != table:\n", "        if seen is None:\n", _REMEDIES,
    ),
    Mutant(
        "write a column as it is that was masked under another name (H285)", "connectors/kafka/schema_registry.py",
        "if plain.get(number, one) != one]", "if False]", _REGISTRY,
    ),
    Mutant(
        "refuse to take a mask off (H285)", "connectors/kafka/schema_registry.py",
        "if plain.get(number, one) != one]", "if number in plain]", _REGISTRY,
    ),
    Mutant(
        "keep rows of a table with masks (H286)", "connectors/session/relations.py",
        "        if not self._registry.has_masks(table, relation.relation_oid):\n            return LATER\n",
        "        if True:\n            return LATER\n", _RELATIONS,
    ),
    Mutant(
        "take a table with masks as it was known, unseen (H286)", "connectors/session/relations.py",
        "        known_so = known_so and not self._registry.has_masks(table, relation.relation_oid)\n", "", _RELATIONS,
    ),
    Mutant(
        "keep an announcement of a table with masks behind others (H286)", "connectors/session/relations.py",
        "        self._unread(relation, self._as_leaf(relation))\n", "", _RELATIONS,
    ),
    Mutant(
        "go on keeping rows of a table that must not be kept (H286)", "connectors/postgres/assembly/assembler.py",
        "            self._kept(relation)\n        except CannotFollow as why:\n            self._set_aside(why)",
        "            self._kept(relation)\n        except CannotFollow:\n            pass", _ROWS,
    ),
    Mutant(
        "forget parts of tables with masks that are gone (H287)", "cdc/capture/table_masks.py",
        "        self._know(find_all(documents, MaskedPartState))\n", "", _NOTES,
    ),
    Mutant(
        "take the part of one table with masks for that of another (H287)", "cdc/capture/table_masks.py",
        "found.get(one.oid, frozenset()) | {one.table}", "frozenset({one.table})", _NOTES,
    ),
    Mutant(
        "capture what a masked table was attached to as it is (H287)", "connectors/postgres/server/queries.sql",
        "select root, oid from down union select root, oid from up", "select root, oid from down",
        "tests/integration/capture/test_mask_parts.py -k attached",
    ),
    Mutant(
        "capture a part of a table without its masks (H287, H340)", "cdc/capture/table_masks.py",
        "for column in {*self.masks.of(other), *more(other)} - masked]", "for column in ()]", _REGISTRY,
    ),
    Mutant(
        "forget the masks of the log's shape of the table (H340)", "cdc/capture/table_masks.py",
        "{*self.masks.of(other), *more(other)}", "{*self.masks.of(other)}", _REGISTRY,
    ),
    Mutant(
        "take a shape as it was known, whatever masks its table has (H340)", "connectors/kafka/schema_registry.py",
        "        self.require_masks(schema)\n        latest = self._latest.get(schema.table)\n",
        "        latest = self._latest.get(schema.table)\n"
        "        if latest is None or not latest.same_shape(schema):\n            self.require_masks(schema)\n",
        _REGISTRY,
    ),
    Mutant(
        "follow a part again that lacks masks (H340)", "connectors/session/aside_causes.py",
        "            self._registry.require_masks(now)\n", "",
        "tests/integration/capture/test_mask_parts.py -k h340",
    ),
    Mutant(
        "forget what inherits from tables with masks (H343)", "connectors/postgres/server/queries.sql",
        "select root, oid from down union select root, oid from up", "select root, oid from up",
        "tests/integration/capture/test_mask_parts.py -k h343",
    ),
    Mutant(
        "pass over rows that were written under other masks (H290)", "cdc/capture/table_masks.py",
        "                differing[table] |= _differing(shape.noted_masks, self.masks.noted_among(shape))\n",
        "                pass\n", _NOTES,
    ),
    Mutant(
        "believe the newest shape before the stream has passed it (H284)", "cdc/capture/table_masks.py",
        "        if known.oid != shape.oid:\n", "        if True:\n", _NOTES,
    ),
    Mutant(
        "take masks of a table that is not captured (H291)", "cdc/capture/table_masks.py",
        "sorted(self.masks.tables.keys() - set(tables))", "()", _NOTES,
    ),
    Mutant(
        "read a chunk by names that were swapped since its plan (H284)", "snapshot/source/read_transaction.py",
        "    if not schema.noted_masks:\n        return\n", "    if True:\n        return\n",
        "tests/integration/capture/test_mask_covers.py -k behind_a_plan",
    ),
    Mutant(
        "compare by names that were swapped since the shape was read (H284)",
        "connectors/postgres/server/cut_reader.py",
        "            self._require_numbers(table)\n", "",
        "tests/integration/capture/test_mask_covers.py -k behind_a_plan",
    ),
    Mutant(
        "refuse another mask of a key (H288)", "connectors/kafka/schema_registry.py",
        "former.plain_key_form == schema.plain_key_form", "former.key_form == schema.key_form", _SHAPES,
    ),
    Mutant(
        "take another key for the same under other masks (H288)", "connectors/kafka/schema_registry.py",
        "former.plain_key_form == schema.plain_key_form",
        "former.plain_key_form == schema.plain_key_form or schema.masked_key", _SHAPES,
    ),
    Mutant(
        "leave a table aside whose key has another mask (H346)", "connectors/session/aside_causes.py",
        "known.plain_key_form != now.plain_key_form", "known.key_form != now.key_form",
        "tests/integration/capture/test_mask_covers.py -k h346",
    ),
    Mutant(
        "pass over another type of a masked key (H346)", "cdc/record/schema.py",
        "(column.mask.rule, *own)", "(column.mask.rule,)", _SHAPES,
    ),
    Mutant(
        "quote an error over a value of a row (H348)", "connectors/postgres/server/cut_reader.py",
        "    if (error.sqlstate or \"\")[:2] in QUOTES_VALUES:\n", "    if False:\n",
        "tests/unit/connectors/postgres/server/test_cut.py",
    ),
    Mutant(
        "compute with a masked value within a row of a query below (H294)", "cdc/views/term_walks.py",
        "        case WholeRow(source=source, location=location):\n"
        "            return _within((_column(source, name, location) for name, _ in source.columns), location)\n",
        "        case WholeRow():\n            return None\n", _VIEWS,
    ),
    Mutant(
        "compute with a masked value of a scalar subquery (H294)", "cdc/views/term_walks.py",
        'case Subquery(form="scalar", query=query, location=location):\n'
        "            found = taint_of(query.outputs[0][1])",
        'case Subquery(form="scalar", query=query, location=location):\n            found = None', _VIEWS,
    ),
    Mutant(
        "compute with a masked value that JSON carries (H294)", "cdc/views/term_walks.py",
        "return _within(map(taint_of, _carrying(expression)), expression.location)", "return None", _VIEWS,
    ),
    Mutant(
        "look for values among masked ones (H294)", "cdc/views/term_walks.py",
        'isinstance(expression, Subquery) and expression.form == "in"', "False", _VIEWS,
    ),
    Mutant(
        "sort an aggregate by the masked value that it carries (H294)", "cdc/views/term_walks.py",
        "return bool(carrying) and place < len(expression.args)", "return bool(carrying)", _VIEWS,
    ),
    Mutant(
        "note no masks of the settings in a shape (H294)", "cdc/settings/mask_rules.py",
        "rules = {column: rule for column, rule in self.of(schema.table).items() if column not in schema.noted_masks}",
        "rules: dict[str, MaskRule] = {}", "tests/unit/cdc/settings/test_mask_rules.py",
    ),
    Mutant(
        "go on with a view over a column that is masked meanwhile (H295)", "cdc/views/view_records.py",
        "        require_planned(schema, relation)\n", "", _VIEWS,
    ),
    Mutant(
        "fail for a view that never can be compared (H333)", "cdc/verification/run.py",
        "not_compared=lacking, left_out=self._ports.left_out", "not_compared={**lacking, **self._ports.left_out}",
        "tests/unit/cdc/verification/test_run.py",
    ),
    Mutant(
        "end the comparison of all for one mask (H334)", "connectors/operate/verify.py",
        "                if unkept is None:\n", "                if True:\n",
        "tests/integration/cli/test_masked_verify.py",
    ),
    Mutant(
        "look for the value of a masked key (H335)", "cdc/operate/forget.py",
        "column.mask is not None and not _HMAC", "False and not _HMAC", _FORGET,
    ),
    Mutant(
        "let a view's function compute with masked values (H337)", "connectors/views/view_planning.py",
        "    if plan.masked:\n", "    if False:\n", "tests/unit/connectors/views/test_view_posts.py -k h337",
    ),
    Mutant(
        "keep masks under a name in quotes that no table has (H338)", "cdc/settings/setting_types.py",
        "        found[table] = section\n", "        found[name] = section\n",
        "tests/unit/cdc/settings/test_mask_rules.py -k h338",
    ),
    Mutant(
        "do not look into the sides of what ties (H330)", "cdc/views/term_walks.py",
        "            _check(text, part, carried=True)\n", "            pass\n", _VIEWS,
    ),
    Mutant(
        "go on with a view under another mask than it was planned with (H331)", "cdc/views/view_records.py",
        "    if changed:\n", "    if False:\n", _VIEWS,
    ),
    Mutant(
        "tie HMACs of values that have several texts (H332)", "cdc/views/term_walks.py",
        "or mask.kind not in EXACT_KINDS", "", _VIEWS,
    ),
    Mutant(
        "tie HMACs of values of other types (H332)", "cdc/views/term_walks.py",
        "    return (one.rule, one.text_of) == (other.rule, other.text_of)\n",
        "    return one.rule == other.rule\n", _VIEWS,
    ),
    Mutant(
        "compare under another key than capture's (H296)", "connectors/operate/verify.py",
        "        if columns:\n            found[str(table)] =", "        if False:\n            found[str(table)] =",
        "tests/integration/capture/test_mask_covers.py -k h296",
    ),
    Mutant(
        "call a store equal in a column that its mask leaves out (H297)", "connectors/operate/verify.py",
        "                left_out={one.name: _LEFT_OUT for one in shape.dropped},\n", "",
        "tests/integration/capture/test_mask_covers.py -k h296",
    ),
    Mutant(
        "put a row aside for half a character (H324)", "cdc/wire/debezium/wrapped.py",
        "            whole = without_halves(value)\n", "            whole = value\n", _HALVES,
    ),
)  # fmt: skip
