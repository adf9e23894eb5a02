"""`klog follow` of the one file over TLS: the OpenSSL inside checks a real broker, and logs in to it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.commands.follow.client.fake_broker import CERTIFICATES
from tests.commands.follow.client.test_secured_broker import WELCOME, Secured, secured
from tests.release.root import Root

__all__ = ["secured"]  # a fixture, which pytest finds by its name here
pytestmark = [pytest.mark.release, pytest.mark.kafka]


@pytest.mark.parametrize("way", WELCOME)
def test_every_way_in_leads_to_the_same_log(
    secured: Secured,
    tmp_path_factory: pytest.TempPathFactory,
    way: str,
) -> None:
    root = Root(tmp_path_factory.mktemp("root"))
    (root.folder / "etc").mkdir()
    (root.folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    inside = root.folder / os.fspath(CERTIFICATES).lstrip("/")
    shutil.copytree(CERTIFICATES, inside)
    port, lines = WELCOME[way]
    (root.folder / "client.properties").write_text("\n".join(lines))
    words = ("follow", f"localhost:{port}", "--to", "/copy", "--security-config", "/client.properties", "--quiet")
    found = root.run(*words)
    assert found.exit_code == 0, found.stderr
    name = Path("private-0") / f"{0:020}.log"
    assert (root.folder / "copy" / name).read_bytes() == (secured.broker.data / name).read_bytes()
