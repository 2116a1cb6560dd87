#!/usr/bin/env bash
# What the GitHub action and the GitLab template have in common: runs h2lab, keeps the report, writes a summary.
#
#   H2LAB_COMMAND    arguments of h2lab: a command that measures [compare]
#   H2LAB_FAIL_IF    conditions, one a line; those that name `base.` need H2LAB_BASE
#   H2LAB_BASE       a report.json of an earlier run, with which this one is compared
#   H2LAB_FOLDER     where report.html, report.json and summary.md go [h2lab-report]
#   GITHUB_STEP_SUMMARY  a file to which the summary is appended
#
# Exits as h2lab does: 1 if a condition fails, 5 if the measurement is invalid.
set -euo pipefail

folder=${H2LAB_FOLDER:-h2lab-report}
mkdir -p "$folder"
read -r -a command <<<"${H2LAB_COMMAND:-compare}"
own=() against=()
while IFS= read -r condition; do
    case $condition in
        '') ;;
        *base.*) against+=(--fail-if "$condition") ;;
        *) own+=(--fail-if "$condition") ;;
    esac
done <<<"${H2LAB_FAIL_IF:-}"
if [ ${#against[@]} -gt 0 ] && [ -z "${H2LAB_BASE:-}" ]; then
    echo "a condition names base., and there is no base to compare with" >&2
    exit 2
fi

code=0
h2lab "${command[@]}" "${own[@]}" \
    -o "$folder/report.html" -o "$folder/report.json" -o "$folder/summary.md" || code=$?
if [ -n "${H2LAB_BASE:-}" ] && [ -s "$folder/report.json" ]; then
    changed=0
    h2lab diff "$H2LAB_BASE" "$folder/report.json" "${against[@]}" -o "$folder/diff.md" || changed=$?
    cat "$folder/diff.md" >>"$folder/summary.md"
    if [ "$code" -eq 0 ]; then code=$changed; fi
fi
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -s "$folder/summary.md" ]; then
    cat "$folder/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$code"
