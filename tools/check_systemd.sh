#!/bin/sh
# Checks systemd/: units parse, the XML is well formed, every catalogued id is unique, the sandbox scores well.
# A missing tool skips its check and is named; skipping everything exits with 77 (meson: skipped).
set -eu

source_dir=$(cd "$(dirname "$0")/.." && pwd)/systemd
score_max=2.5
work_dir=$(mktemp -d)
trap 'rm -rf "$work_dir"' EXIT
failed=0
checks_run=0

fail() {
    echo "check_systemd: $1" >&2
    failed=1
}

have() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "check_systemd: $1 is missing: $2 not checked"
        return 1
    }
    checks_run=$((checks_run + 1))
}

if have systemd-analyze "units"; then
    # verify wants the programs to exist, and they are not installed yet.
    sed -e "s|@BINDIR@/perceptd|/bin/true|" -e "s|@DATADIR@|/usr/share|" "$source_dir/perceptd.service.in" >"$work_dir/perceptd.service"
    cp "$source_dir/perceptd.socket" "$work_dir/"
    # verify exits with 0 after a warning such as an unknown key, so any word about our files counts. Other units of the
    # machine, the user that sysusers has yet to make and the manual that is not installed are not our business.
    SYSTEMD_UNIT_PATH="$work_dir:" systemd-analyze verify --man=no --recursive-errors=no \
        "$work_dir/perceptd.service" "$work_dir/perceptd.socket" >"$work_dir/verify" 2>&1 || fail "verify exits with $?"
    if grep "perceptd\." "$work_dir/verify"; then
        fail "systemd-analyze verify complains"
    fi
    # Only the exit status knows the threshold; it is in tenths.
    threshold=$(echo "$score_max" | sed 's/\.//')
    systemd-analyze security --offline=true --no-pager --threshold="$threshold" "$work_dir/perceptd.service" \
        >"$work_dir/security" 2>&1 || fail "exposure is above $score_max: systemd-analyze security says why"
    tail -n 1 "$work_dir/security"
fi

if have xmllint "XML"; then
    xmllint --noout --nonet "$source_dir"/../proto/*.xml || fail "D-Bus XML is not well formed"
    xmllint --noout --nonet "$source_dir"/org.perceptd1.conf "$source_dir"/org.perceptd1.policy || fail "XML is not well formed"
fi

if command -v journalctl >/dev/null 2>&1; then
    mkdir -p "$work_dir/usr/lib/systemd/catalog" "$work_dir/var/lib/systemd/catalog"
    cp "$source_dir/perceptd.catalog" "$work_dir/usr/lib/systemd/catalog/"
    journalctl --root="$work_dir" --update-catalog || fail "the catalogue does not compile"
fi
if command -v systemd-sysusers >/dev/null 2>&1; then
    systemd-sysusers --dry-run "$source_dir/perceptd.sysusers" >/dev/null 2>&1 || fail "sysusers"
fi
# The activation file must lead to this very unit, and the unit must own that very name.
name=$(sed -n 's/^Name=//p' "$source_dir/org.perceptd1.service.in")
grep -q "^BusName=$name\$" "$source_dir/perceptd.service.in" || fail "the unit does not own the name that activates it"
grep -q "^SystemdService=perceptd.service\$" "$source_dir/org.perceptd1.service.in" || fail "activation leads elsewhere"
# polkit answers a daemon that is not root about other users only when it owns the action.
user=$(sed -n 's/^User=//p' "$source_dir/perceptd.service.in")
[ "$(grep -c "<action id=" "$source_dir/org.perceptd1.policy")" = "$(grep -c "policykit.owner\">unix-user:$user<" "$source_dir/org.perceptd1.policy")" ] \
    || fail "an action of the polkit policy is not owned by $user"
grep -q "<allow own=\"$name\"/>" "$source_dir/org.perceptd1.conf" || fail "the bus policy lets nobody own $name"

repeated=$(sed -n 's/^-- //p' "$source_dir/perceptd.catalog" | sort | uniq -d)
[ -z "$repeated" ] || fail "catalogue id used twice: $repeated"

[ "$checks_run" -gt 0 ] || exit 77
exit "$failed"
