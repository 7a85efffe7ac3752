"""The allow-list: whom it knows, what each may do, and what is refused in it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.access import AccessList, Permission, User, access_list, is_curve_key, token_hash
from shisha_rt.protocol.operations import CONTROL_OPS, INFER, OPERATIONS
from tests.wording import raised

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
OTHER_KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
TOKEN = "0123456789abcdef" * 4


def test_a_client_may_do_all_but_control_and_an_operator_everything() -> None:
    for op in (*OPERATIONS, INFER):
        assert Permission.OPERATOR.may(op)
        assert Permission.CLIENT.may(op) == (op not in CONTROL_OPS)


def test_users_are_found_by_key_and_by_token() -> None:
    first = User("one", public_key=KEY, token_sha256=token_hash("secret"))
    second = User("two", Permission.OPERATOR, token_sha256=token_hash("other"))
    users = AccessList([first, second])
    assert users.of_key(KEY) is first
    assert users.of_key(OTHER_KEY) is None
    assert users.of_token("secret") is first
    assert users.of_token("other") is second
    for wrong in ("", "Secret", "secret ", token_hash("secret"), "ümlaut"):
        assert users.of_token(wrong) is None
    assert token_hash("secret") == hashlib.sha256(b"secret").hexdigest()


def test_a_list_is_read() -> None:
    raw = {
        "user": [
            {"name": "camera", "public_key": KEY},
            {"name": "me", "permission": "operator", "token_sha256": TOKEN, "unix_user": "alice"},
        ]
    }
    listed = access_list(raw, "access.toml")
    assert listed.users == (
        User("camera", Permission.CLIENT, KEY),
        User("me", Permission.OPERATOR, None, TOKEN, "alice"),
    )
    assert access_list({}, "access.toml").users == ()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"users": []}, r"users = \[\]: unknown key,"),
        ({"user": [{"public_key": KEY}]}, r"user\[0\]\.name is missing"),
        ({"user": [{"name": "a", "key": KEY}]}, r"user\[0\]\.key = .*: unknown key,"),
        ({"user": [{"name": "", "public_key": KEY}]}, r"user\[0\]\.name = \"\": expected 1 to 64 characters"),
        ({"user": [{"name": "a\nb", "public_key": KEY}]}, r"name = .*: .* 1 to 64 characters that can"),
        (
            {"user": [{"name": "a", "permission": "root", "public_key": KEY}]},
            r"user\[0\]\.permission = \"root\": .* client, operator$",
        ),
        ({"user": [{"name": "a", "public_key": KEY[:-1]}]}, r"public_key = .*: expected 40 characters of Z85"),
        ({"user": [{"name": "a", "public_key": KEY[:-1] + "\n"}]}, r"public_key = .*: expected 40 characters of Z85"),
        ({"user": [{"name": "a", "token_sha256": TOKEN.upper()}]}, r"token_sha256 = .*: expected 64 hexadecimal"),
        ({"user": [{"name": "a", "unix_user": ""}]}, r"unix_user = \"\":"),
        ({"user": [{"name": "a", "unix_user": "a\0"}]}, r"unix_user = \"a.u0000\":"),
        ({"user": [{"name": "a"}]}, r"user\[0\] \"a\": nothing identifies .* user;"),
        ({"user": [{"name": "a", "public_key": KEY}, {"name": "a", "public_key": OTHER_KEY}]}, r"user\[1\]\.name = "),
        ({"user": [{"name": "a", "public_key": KEY}, {"name": "b", "public_key": KEY}]}, r"user\[0\] has it, too"),
        ({"user": [{"name": "a", "token_sha256": TOKEN}, {"name": "b", "token_sha256": TOKEN}]}, r"token_sha256 = "),
        ({"user": [{"name": f"{i}", "unix_user": f"{i}"} for i in range(4097)]}, r"4097 users, .* 4096"),
    ],
)
def test_what_is_wrong_with_a_list_is_said_in_one_line(raw: dict[str, Any], said: str) -> None:
    with raised(BadInput, Error.WRONG_VALUE, match=f"^access.toml: .*{said}") as caught:
        access_list(raw, "access.toml")
    assert "\n" not in str(caught.value)


def test_keys_are_told_from_other_texts() -> None:
    assert is_curve_key(KEY)
    assert is_curve_key("%nSc0" * 8)  # 2**32 - 1 in each group
    for text in ("", KEY + "a", KEY[:-1] + '"', KEY[:-1] + "é", "/" * 39, "%nSc1" + KEY[5:]):
        assert not is_curve_key(text)
