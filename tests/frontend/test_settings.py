from __future__ import annotations

from pathlib import Path

import pytest

from frontend.settings import Settings, SettingsError, load

pytestmark = pytest.mark.pure


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "omni.yaml"


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("port: 1\nhost: file\nprofile: file\n")
    monkeypatch.setenv("OMNI_PORT", "2")
    monkeypatch.setenv("OMNI_HOST", "environment")
    settings = load(["--config", str(file), "--port", "3"])
    assert (settings.port, settings.host, settings.profile) == (3, "environment", "file")
    assert settings.max_in_flight == Settings.model_fields["max_in_flight"].default


def test_the_file_may_be_named_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("served_model_name: [a, b]\n")
    monkeypatch.setenv("OMNI_CONFIG", str(file))
    assert load([]).served_model_name == ("a", "b")


def test_an_empty_file_is_fine(file: Path) -> None:
    file.write_text("# nothing\n")
    assert load(["--config", str(file)]).port == 8000


def test_lists_are_separated_by_commas_or_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_API_KEYS", "one, two")
    settings = load(["--served-model-name", "a,b", "--served-model-name", "c"])
    assert [key.get_secret_value() for key in settings.api_keys] == ["one", "two"]
    assert settings.served_model_name == ("a", "b", "c")


def test_an_empty_folder_is_none_and_not_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(["--media-folder", ""]).media_folder is None
    monkeypatch.setenv("OMNI_MEDIA_FOLDER", "")
    assert load([]).media_folder is None
    monkeypatch.setenv("OMNI_MEDIA_FOLDER", "/srv/media")
    assert load([]).media_folder == Path("/srv/media")


def test_sizes_may_have_units() -> None:
    assert load(["--max-body-bytes", "3MiB"]).max_body_bytes == 3 << 20


def test_flags_have_a_positive_and_a_negative_form() -> None:
    assert load(["--no-warmup", "--disable-docs"]).warmup is False
    assert load(["--warmup"]).warmup is True


def test_the_level_of_logs_may_be_written_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_LOG_LEVEL", "WARNING")
    assert load([]).log_level == "warning"


def test_an_unknown_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_PRT", "1")
    with pytest.raises(SettingsError, match=r"^OMNI_PRT: there is no such setting$"):
        load([])


def test_variables_of_the_launcher_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_TRITON_GRPC_PORT", "1")
    load([])


def test_an_unknown_key_of_the_file_is_named(file: Path) -> None:
    file.write_text("prt: 1\n")
    with pytest.raises(SettingsError, match=r"^prt: there is no such setting$"):
        load(["--config", str(file)])


def test_an_unknown_option_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load(["--prt", "1"])
    assert end.value.code == 2
    assert "--prt" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "just words\n"])
def test_a_file_that_is_no_mapping_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError, match="config: the file"):
        load(["--config", str(file)])


def test_a_missing_file_is_refused(file: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read"):
        load(["--config", str(file)])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("port", ("-1", "65536", "x")),
        ("max_in_flight", ("0", "1000001")),
        ("max_sessions", ("0",)),
        ("max_body_bytes", ("0", "x")),
        ("max_media_bytes", ("0",)),
        ("max_media_item_bytes", ("0",)),
        ("ws_max_size", ("0",)),
        ("retry_after_s", ("0", "3601")),
        ("generation_timeout", ("0", "nan", "86401")),
        ("warmup_timeout", ("0",)),
        ("probe_interval", ("-1",)),
        ("probe_timeout", ("0",)),
        ("shutdown_timeout", ("-1", "86401")),
        ("log_level", ("loud",)),
        ("log_format", ("xml",)),
        ("engine", ("steam",)),
        ("warmup", ("maybe",)),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_setting(
    name: str, values: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in values:
        monkeypatch.setenv(f"OMNI_{name.upper()}", value)
        with pytest.raises(SettingsError, match=f"^{name}: "):
            load([])


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as problem:
        load(["--port", "x", "--max-in-flight", "0"])
    assert [line.partition(":")[0] for line in str(problem.value).splitlines()] == ["port", "max_in_flight"]


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(SettingsError, match="ssl_certfile and ssl_keyfile go together"):
        load(["--ssl-certfile", "x.pem"])


@pytest.mark.parametrize("path", ["omni", "/omni/"])
def test_a_root_path_has_its_form(path: str) -> None:
    with pytest.raises(SettingsError, match="root_path"):
        load(["--root-path", path])


def test_secrets_stay_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_API_KEYS", "hush")
    assert "hush" not in repr(load([]))
    with pytest.raises(SettingsError) as problem:
        load(["--port", "hush"])
    assert "hush" not in str(problem.value)


def test_help_explains_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description, f"{name} has no description"


def test_the_profile_names_the_model_unless_the_settings_do() -> None:
    assert load([]).model_names("theirs") == ("theirs",)
    assert load(["--served-model-name", "ours"]).model_names("theirs") == ("ours",)
