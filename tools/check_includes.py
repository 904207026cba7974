#!/usr/bin/env python3
"""The include ladder: each stage of daemon/ includes only itself and earlier stages; client and tools never the daemon,
but for tools/model, which makes what the model stage reads, and tools/generate, which generates without a daemon."""
import pathlib
import re
import sys

LADDER = ["base", "fence", "arena", "sensor", "sync", "tokens", "power", "model", "graph", "engine", "queue", "store",
          "generate", "session", "bus"]
ONLY_IN = {"sdbus-c++/": ["bus"], "spdlog/": ["base"], "xf86drm": ["fence", "queue"], "linux/videodev2": ["sensor"],
           "alsa/": ["sensor"]}
TOOL_MAY_USE = {"tools/model": LADDER[:LADDER.index("engine") + 1],
                "tools/generate": LADDER[:LADDER.index("generate") + 1]}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def faults(root: pathlib.Path):
    for path in sorted(root.glob("daemon/**/*.[ch]pp")):
        inside = path.relative_to(root / "daemon").parts
        stage = inside[0] if len(inside) > 1 else None
        if stage and stage not in LADDER:
            yield f"{path}: folder {stage} is not on the ladder"
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            first = target.split("/")[0] if "/" in target else ""  # <queue> is the standard's
            if stage and first in LADDER and LADDER.index(first) > LADDER.index(stage):
                yield f"{path}:{number}: {stage} may not include the later stage {target}"
            for prefix, allowed in ONLY_IN.items():
                if target.startswith(prefix) and stage not in allowed:
                    yield f"{path}:{number}: {target} belongs to {', '.join(allowed)} alone"
    for folder in ("client", "tools"):
        for path in sorted((root / folder).glob("**/*.[ch]pp")):
            allowed = TOOL_MAY_USE.get(path.parent.relative_to(root).as_posix(), [])
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                first = match.group(1).split("/")[0] if match and "/" in match.group(1) else ""
                if first in LADDER and first not in allowed:
                    yield f"{path}:{number}: {folder} may not include the daemon's {match.group(1)}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = list(faults(root))
    print("\n".join(found) if found else "include ladder: ok")
    return 1 if found else 0


sys.exit(main())
