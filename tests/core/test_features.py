"""A feature is a folder: found when it is there, forgotten when it is deleted."""

from pathlib import Path

from webapp.core.features import has_module, installed_features


def test_a_folder_with_an_apps_file_is_a_feature_and_order_is_fixed(tmp_path: Path) -> None:
    for name in ("pools", "runs", "stack", "accounts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "apps.py").touch()
    (tmp_path / "review").mkdir()
    assert installed_features(tmp_path) == ("runs", "pools")
    (tmp_path / "runs" / "apps.py").unlink()
    assert installed_features(tmp_path) == ("pools",)


def test_a_missing_module_is_told_from_an_existing_one_without_importing_it() -> None:
    assert has_module("webapp.core.views")
    assert not has_module("webapp.core.nothing_of_this_name")
