#!/usr/bin/env python3
"""Checks config/ with an independent validator (python3-jsonschema), so that the daemon's own pass is not its only judge.

Every config/**/*.json must fit the schema; every key needs a description, a unit, a live flag, a range and a default;
perceptd.json must hold exactly the schema's defaults; README.md must name every key with its default.
"""
import json
import pathlib
import sys

try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is missing: skipped")
    sys.exit(77)


def without_comments(text):
    """Blanks // and /* */ outside strings and keeps newlines, so that error lines stay true."""
    out, i, in_string = [], 0, False
    while i < len(text):
        if in_string:
            step = 2 if text[i] == "\\" else 1
            in_string = text[i] != '"'
            out.append(text[i:i + step])
            i += step
        elif text.startswith("//", i):
            i = text.find("\n", i) if "\n" in text[i:] else len(text)
        elif text.startswith("/*", i):
            end = text.index("*/", i) + 2
            out.append("\n" * text.count("\n", i, end))
            i = end
        else:
            in_string = text[i] == '"'
            out.append(text[i])
            i += 1
    return "".join(out)


def leaves(schema, pointer=""):
    for name, entry in schema["properties"].items():
        if entry.get("type") == "object":
            yield from leaves(entry, f"{pointer}/{name}")
        else:
            yield f"{pointer}/{name}", entry


def objects(schema, pointer=""):
    yield pointer or "/", schema
    for name, entry in schema["properties"].items():
        if entry.get("type") == "object":
            yield from objects(entry, f"{pointer}/{name}")


def value_at(document, pointer):
    for part in pointer.split("/")[1:]:
        document = document[part]
    return document


def main():
    config = pathlib.Path(__file__).resolve().parent.parent / "config"
    schema_path = config / "perceptd.schema.json"
    schema = json.loads(schema_path.read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    problems = []

    for pointer, entry in objects(schema):
        if entry.get("additionalProperties") is not False or not entry.get("description"):
            problems.append(f"{schema_path}: {pointer}: needs a description and additionalProperties false")
    for pointer, entry in leaves(schema):
        for key in ("description", "x-unit", "x-live", "default"):
            if key not in entry:
                problems.append(f"{schema_path}: {pointer}: no {key}")
        if entry["type"] in ("integer", "number") and not {"minimum", "maximum"} <= entry.keys():
            problems.append(f"{schema_path}: {pointer}: a number without a range")
        for error in jsonschema.Draft7Validator(entry).iter_errors(entry.get("default")):
            problems.append(f"{schema_path}: {pointer}: the default breaks the schema: {error.message}")

    documents = {}
    for path in sorted(p for p in config.rglob("*.json") if p != schema_path):
        try:
            documents[path] = json.loads(without_comments(path.read_text()))
        except ValueError as error:
            problems.append(f"{path}: {error}")
            continue
        for error in validator.iter_errors(documents[path]):
            problems.append(f"{path}: /{'/'.join(map(str, error.absolute_path))}: {error.message}")

    vendor = config / "perceptd.json"
    readme = (config / "README.md").read_text()
    for pointer, entry in leaves(schema):
        try:
            if value_at(documents[vendor], pointer) != entry["default"]:
                problems.append(f"{vendor}: {pointer}: not the schema's default")
        except KeyError:
            problems.append(f"{vendor}: {pointer}: missing")
        row = f"| `{pointer}` | {entry['x-unit']} |"
        lines = [line for line in readme.splitlines() if line.startswith(row)]
        live = "| yes |" if entry["x-live"] else "| restart |"
        default = f"| `{json.dumps(entry['default'])}` |"
        if len(lines) != 1 or default not in lines[0] or live not in lines[0] or entry["description"] not in lines[0]:
            problems.append(f"{config / 'README.md'}: {pointer}: no row that agrees with the schema")

    print("\n".join(problems) if problems else f"{len(documents)} files fit {schema_path.name}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
