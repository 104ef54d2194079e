"""Rules of masked columns: what they cover, and what is done about rows from before a mask."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_COVER = "tests/unit/connectors/postgres/test_mask_cover.py"
_NOTES = "tests/unit/connectors/session/test_mask_notes.py"
_SHAPES = "tests/unit/connectors/postgres/test_masked_shapes.py"
_VIEWS = "tests/unit/cdc/views/test_masked_views.py"
_ROWS = "tests/unit/connectors/postgres/test_masked_rows.py"
_RELATIONS = "tests/unit/connectors/session/test_masked_relations.py"
_LINEAGE = "tests/unit/connectors/session/test_mask_lineage.py"
_FORMER = "tests/unit/snapshot/later/test_former_keys.py"
_FORGET = "tests/unit/cdc/forget/test_asked_key.py"
_HALVES = "tests/unit/cdc/wire/debezium/test_halves.py"

MUTANTS = (
    Mutant(
        "sweep a table of a later epoch without its masks (H283)", "snapshot/first/sweep.py",
        "masks = masks_of(settings)", "masks = type(masks_of(settings))()",
        "tests/integration/capture/test_mask_covers.py -k h283",
    ),
    Mutant(
        "take numbers that fall for those of the message (H284)", "connectors/postgres/mask_cover.py",
        "    rising = all(low < high for", "    rising = all(low != high for", _COVER,
    ),
    Mutant(
        "take the catalog's numbers though it changed since (H284)", "connectors/postgres/mask_cover.py",
        "    return not newer or (", "    return True or (", _COVER,
    ),
    Mutant(
        "take the catalog's numbers though a column was dropped since (H284)", "connectors/postgres/mask_cover.py",
        "all(entry.live for entry in newer)", "True", _COVER,
    ),
    Mutant(
        "take the order of transactions' numbers for that of their changes (H347)", "connectors/postgres/mask_cover.py",
        "[now] if noted is None or now == noted else [now, noted]", "[now]", _COVER,
    ),
    Mutant(
        "mask columns by their names in the message alone (H284)", "connectors/postgres/mask_cover.py",
        "rule = by_name or by_number", "rule = by_name", _COVER,
    ),
    Mutant(
        "take the first of two numberings that mask otherwise (H284)", "connectors/postgres/mask_cover.py",
        "any(rules != every[0] for rules in every)", "False", _COVER,
    ),
    Mutant(
        "read a chunk by names that were swapped since its plan (H284)", "snapshot/read_transaction.py",
        "    if not schema.noted_masks:\n        return\n", "    if True:\n        return\n",
        "tests/integration/capture/test_mask_covers.py -k behind_a_plan",
    ),
    Mutant(
        "compare by names that were swapped since the shape was read (H284)", "connectors/postgres/cut.py",
        "            self._require_numbers(table)\n", "",
        "tests/integration/capture/test_mask_covers.py -k behind_a_plan",
    ),
    Mutant(
        "write a column as it is that was masked under another name (H285)", "connectors/postgres/mask_cover.py",
        "if rule is None and former != (table, name):", "if False:", _COVER,
    ),
    Mutant(
        "forget the masks of a relation whose name another one has (H285)", "connectors/kafka/schema_registry.py",
        "formers = dict(self._of_relation.get(oid, {}))",
        "formers = {t: s for t, s in self._of_relation.get(oid, {}).items() if self._latest[t] is s}", _SHAPES,
    ),
    Mutant(
        "keep rows for later under names that the log does not know (H286)", "connectors/session/relations.py",
        "            self._require_known_names(relation)\n            return LATER", "            return LATER",
        _RELATIONS,
    ),
    Mutant(
        "keep an announcement behind others under any name (H286)", "connectors/session/relations.py",
        "        self._require_known_names(relation)\n        if not self._partitions.leads",
        "        if not self._partitions.leads", _RELATIONS,
    ),
    Mutant(
        "go on keeping rows of a table that must not be kept (H286)", "connectors/postgres/assemble.py",
        "            self._kept(relation)\n        except CannotFollow as why:\n            self._set_aside(why)",
        "            self._kept(relation)\n        except CannotFollow:\n            pass", _ROWS,
    ),
    Mutant(
        "forget partitions that are gone (H287)", "connectors/session/mask_lineage.py",
        "    note = MaskState.find(documents)\n    for", "    note = None\n    for", _NOTES,
    ),
    Mutant(
        "capture a part of a table without its masks (H287, H340)", "connectors/postgres/inherited_masks.py",
        "    if plain:\n", "    if False:\n", _LINEAGE,
    ),
    Mutant(
        "take a shape as it was known, whatever masks its table has (H340)", "connectors/kafka/schema_registry.py",
        "            self.require_lineage(schema.table, schema.oid)\n            return latest",
        "            return latest", _LINEAGE,
    ),
    Mutant(
        "follow a part again that lacks masks (H340)", "connectors/session/remedies.py",
        "            self._registry.require_covered(now)\n", "",
        "tests/integration/capture/test_mask_covers.py -k h340",
    ),
    Mutant(
        "make the topic of a part that lacks masks (H341)", "connectors/session/captured.py",
        "        self._registry.require_lineage(table.table, table.oid)\n", "",
        "tests/integration/capture/test_mask_covers.py -k h341",
    ),
    Mutant(
        "forget what inherits from tables with masks (H343)", "connectors/session/joining.py",
        "        tables.topics.saw_parts(parts_of_masked(self.servers.side, masks))\n", "",
        "tests/integration/capture/test_mask_covers.py -k h343",
    ),
    Mutant(
        "keep rows of a part before its masks are asked for (H344)", "connectors/session/relations.py",
        "            if not as_leaf:\n                self._require_own_masks(relation)\n", "", _RELATIONS,
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
        "leave a table aside whose key has another mask (H346)", "connectors/session/remedies.py",
        "known.plain_key_form != now.plain_key_form", "known.key_form != now.key_form",
        "tests/integration/capture/test_mask_covers.py -k h346",
    ),
    Mutant(
        "pass over another type of a masked key (H346)", "cdc/schema.py",
        "(column.mask.rule, *own)", "(column.mask.rule,)", _SHAPES,
    ),
    Mutant(
        "leave keys from other masks in the topic (H289)", "snapshot/later/reader_pool.py",
        "            self._remove_former_keys(reading)", "            pass",
        "tests/integration/capture/test_mask_covers.py -k h289",
    ),
    Mutant(
        "remove a key that was written again since (H289)", "snapshot/later/former_keys.py",
        "found.pop(key, None)", "pass", _FORMER,
    ),
    Mutant(
        "leave the keys of a former name in the topic (H349)", "snapshot/later/former_keys.py",
        "shape.topic == now.topic", "shape.table == now.table", _FORMER,
    ),
    Mutant(
        "lose keys that are too many for memory (H289)", "snapshot/later/former_keys.py",
        "parts += [(part + of, 2 * of), (part, 2 * of)]", "parts += [(part, 2 * of)]", _FORMER,
    ),
    Mutant(
        "forget what was asked before (H290)", "connectors/session/mask_notes.py",
        "    if pending is None:\n", "    if True:\n", _NOTES,
    ),
    Mutant(
        "pass over shapes between two notes (H290)", "connectors/session/mask_notes.py",
        "        or any(shape.noted_masks != masks.noted_among(shape) for shape in since.get(table, ()))\n", "", _NOTES,
    ),
    Mutant(
        "take a reading under other masks for done that was not (H345)", "connectors/session/mask_notes.py",
        '(f"snapshot:{one.table}", "done")', '(f"snapshot:{one.table}", one.state)', _NOTES,
    ),
    Mutant(
        "quote an error over a value of a row (H348)", "connectors/postgres/cut.py",
        "    if (error.sqlstate or \"\")[:2] in QUOTES_VALUES:\n", "    if False:\n",
        "tests/unit/connectors/postgres/test_cut.py",
    ),
    Mutant(
        "take masks of a table that is not captured (H291)", "connectors/session/mask_notes.py",
        "    require_captured(masks, tables)\n", "", _NOTES,
    ),
    Mutant(
        "compute with a masked value within a row of a query below (H294)", "cdc/views/masked_columns.py",
        "        case WholeRow(source=source, location=location):\n"
        "            return _within((_column(source, name, location) for name, _ in source.columns), location)\n",
        "        case WholeRow():\n            return None\n", _VIEWS,
    ),
    Mutant(
        "compute with a masked value of a scalar subquery (H294)", "cdc/views/masked_columns.py",
        'case Subquery(form="scalar", query=query, location=location):\n'
        "            found = taint_of(query.outputs[0][1])",
        'case Subquery(form="scalar", query=query, location=location):\n            found = None', _VIEWS,
    ),
    Mutant(
        "compute with a masked value that JSON carries (H294)", "cdc/views/masked_columns.py",
        "return _within(map(taint_of, _carrying(expression)), expression.location)", "return None", _VIEWS,
    ),
    Mutant(
        "look for values among masked ones (H294)", "cdc/views/masked_columns.py",
        'isinstance(expression, Subquery) and expression.form == "in"', "False", _VIEWS,
    ),
    Mutant(
        "sort an aggregate by the masked value that it carries (H294)", "cdc/views/masked_columns.py",
        "return bool(carrying) and place < len(expression.args)", "return bool(carrying)", _VIEWS,
    ),
    Mutant(
        "note no masks of the settings in a shape (H294)", "cdc/mask_rules.py",
        "rules = {column: rule for column, rule in self.of(schema.table).items() if column not in schema.noted_masks}",
        "rules: dict[str, MaskRule] = {}", "tests/unit/cdc/test_mask_rules.py",
    ),
    Mutant(
        "go on with a view over a column that is masked meanwhile (H295)", "cdc/views/record_rows.py",
        "        require_planned(schema, relation)\n", "", _VIEWS,
    ),
    Mutant(
        "fail for a view that never can be compared (H333)", "cdc/verification/run.py",
        "not_compared=lacking, left_out=self._ports.left_out", "not_compared={**lacking, **self._ports.left_out}",
        "tests/unit/cdc/verification/test_run.py",
    ),
    Mutant(
        "end the comparison of all for one mask (H334)", "connectors/verified.py",
        "                if unkept is None:\n", "                if True:\n",
        "tests/integration/cli/test_masked_verify.py",
    ),
    Mutant(
        "look for the value of a masked key (H335)", "cdc/forget/asked_key.py",
        "column.mask is not None and not _HMAC", "False and not _HMAC", _FORGET,
    ),
    Mutant(
        "let a view's function compute with masked values (H337)", "connectors/view_posts.py",
        "    if plan.masked:\n", "    if False:\n", "tests/unit/connectors/test_view_posts.py -k h337",
    ),
    Mutant(
        "keep masks under a name in quotes that no table has (H338)", "cdc/setting_types.py",
        "        found[table] = section\n", "        found[name] = section\n",
        "tests/unit/cdc/test_mask_rules.py -k h338",
    ),
    Mutant(
        "do not look into the sides of what ties (H330)", "cdc/views/masked_columns.py",
        "            _check(text, part, carried=True)\n", "            pass\n", _VIEWS,
    ),
    Mutant(
        "go on with a view under another mask than it was planned with (H331)", "cdc/views/record_rows.py",
        "    if changed:\n", "    if False:\n", _VIEWS,
    ),
    Mutant(
        "tie HMACs of values that have several texts (H332)", "cdc/views/masked_columns.py",
        "or mask.kind not in EXACT_KINDS", "", _VIEWS,
    ),
    Mutant(
        "tie HMACs of values of other types (H332)", "cdc/views/masked_columns.py",
        "    return (one.rule, one.text_of) == (other.rule, other.text_of)\n",
        "    return one.rule == other.rule\n", _VIEWS,
    ),
    Mutant(
        "compare under another key than capture's (H296)", "connectors/verified.py",
        "        if columns:\n            found[str(table)] =", "        if False:\n            found[str(table)] =",
        "tests/integration/capture/test_mask_covers.py -k h296",
    ),
    Mutant(
        "call a store equal in a column that its mask leaves out (H297)", "connectors/verified.py",
        "                left_out={one.name: _LEFT_OUT for one in shape.dropped},\n", "",
        "tests/integration/capture/test_mask_covers.py -k h296",
    ),
    Mutant(
        "put a row aside for half a character (H324)", "cdc/wire/debezium/wrapped.py",
        "            whole = without_halves(value)\n", "            whole = value\n", _HALVES,
    ),
)  # fmt: skip
