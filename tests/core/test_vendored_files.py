"""Other people's front-end files are the ones the manifest says, each with its licence; templates ask for files that exist."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "static" / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())["packages"]


@pytest.mark.parametrize("package", MANIFEST, ids=lambda package: package["folder"])
def test_every_file_has_the_hash_the_manifest_says(package: dict) -> None:
    folder = VENDOR / package["folder"]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found == package["files"]
    assert "LICENSE" in found
    assert package["licence"] in {"MIT", "OFL-1.1", "0BSD", "BSD-3-Clause"}
    assert package["folder"].endswith(package["version"])


def test_nothing_lies_in_the_vendor_folder_that_the_manifest_does_not_list() -> None:
    assert {path.name for path in VENDOR.iterdir()} == {package["folder"] for package in MANIFEST} | {
        "manifest.json",
        "README.md",
    }


def test_every_static_file_a_template_names_exists() -> None:
    named = {
        name
        for template in (ROOT / "templates").rglob("*.html")
        for name in re.findall(r"{%\s*static\s+['\"]([^'\"]+)['\"]", template.read_text())
    }
    assert len(named) >= 9
    assert [name for name in sorted(named) if finders.find(name) is None] == []


def test_templates_hold_no_inline_script_style_or_handler() -> None:
    bad = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>|<style|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in (ROOT / "templates").rglob("*.html")
        for match in bad.finditer(re.sub(r"{%.*?%}", "", path.read_text(), flags=re.DOTALL))
    ]
    # json_script writes a data block, not a script; it has a type and no src.
    assert [line for line in found if "application/json" not in line] == []
