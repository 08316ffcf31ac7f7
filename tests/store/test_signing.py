"""Guards the promise that with a key only what was signed with it is loaded, and that the key is written nowhere."""

import os
from pathlib import Path

import jax.numpy as jnp
import pytest
from user_modules import SOURCE, run

import partax
from partax.__main__ import main
from partax._store.folder import Folder
from partax._store.switch import folder_of
from stored import written

pytestmark = pytest.mark.compiled_anew
SECRET = "secret-of-the-team"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that others may write to."""
    monkeypatch.setenv("PARTAX_STORE_KEY", SECRET)
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o777)
    return tmp_path / "store"


def test_only_what_is_signed_with_the_key_is_loaded(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = lambda: run(SOURCE, shared.parent, shared).traces
    assert [traces(), traces()] == [1, 0]
    (file,) = shared.glob("*.partax")
    data = Folder(shared, 1 << 30).read(file.stem)
    assert data is not None and SECRET.encode() not in file.read_bytes()
    for secret in (None, b"another"):
        Folder(shared, 1 << 30, secret).write(file.stem, data)
        with pytest.warns(RuntimeWarning, match="not signed with the key"):
            assert traces() == 1
        assert traces() == 0, "it is signed again"
    monkeypatch.setenv("PARTAX_STORE_KEY", "another")
    with pytest.warns(RuntimeWarning, match="not signed") as said:
        main(["store", str(shared), "--verify"])
    assert len(said) == 1 and file.exists() and "unreadable" in capsys.readouterr().out, "another's is not dropped"


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_folder_of_others_needs_a_key_and_no_link_in_it_is_followed(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, own = partax.filter_jit(lambda x: x + 1, store=str(shared)), shared.parent / "own"
    step(jnp.ones(3))
    written()
    (file,) = shared.glob("*.partax")
    file.unlink()
    own.write_text("own")
    file.symlink_to(own)  # by someone who wants it overwritten
    step.clear_cache()
    with pytest.warns(RuntimeWarning, match="damaged"):
        step(jnp.ones(3))
    written()
    assert own.read_text() == "own" and not file.is_symlink()
    monkeypatch.delenv("PARTAX_STORE_KEY")
    with pytest.raises(PermissionError, match="others may write to"):
        partax.store(shared)
    with partax.store(shared, key=SECRET.encode()):
        assert SECRET not in repr(folder_of(None)) + str(partax.report())


@pytest.mark.parametrize("key", ["", b"", 3])
def test_a_key_that_is_none_is_refused(key: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a key that is empty or a `\w+`"):
        partax.store(tmp_path, key=key)  # type: ignore
