"""Sessions of the page: who is behind a cookie, and for how long."""

from __future__ import annotations

from hashlib import sha256

from shisha_rt.http.app_state import Caller
from shisha_rt.http.page.sessions import LASTS_S, MOST, Sessions, session_of, set_cookie
from shisha_rt.protocol.access import AccessList, Permission, User

OPERATOR = Caller("ann", Permission.OPERATOR)
HASH = sha256(b"a token").hexdigest()
ANN = User("ann", Permission.OPERATOR, token_sha256=HASH)


def test_a_session_is_its_callers_until_it_ends() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first, other = sessions.begin(OPERATOR), sessions.begin(Caller("", Permission.CLIENT))
    assert len(first) >= 43  # 256 bits
    assert first != other
    assert sessions.caller(first, None) == OPERATOR
    assert sessions.caller(first + "x", None) is None
    assert sessions.caller(None, None) is None
    sessions.end(first)
    assert sessions.caller(first, None) is None
    now[0] = LASTS_S
    assert sessions.caller(other, None) is None


def test_there_are_never_more_than_so_many() -> None:
    sessions = Sessions(lambda: 0.0)
    first = sessions.begin(OPERATOR)
    later = [sessions.begin(OPERATOR) for _ in range(MOST)]
    assert sessions.caller(first, None) is None
    assert all(sessions.caller(session, None) for session in later)


def test_a_session_ends_with_its_users_token() -> None:
    sessions = Sessions()
    session = sessions.begin(OPERATOR, HASH)
    assert sessions.caller(session, AccessList([ANN])) == OPERATOR
    lesser = AccessList([User("ann", Permission.CLIENT, token_sha256=HASH)])
    assert sessions.caller(session, lesser) == Caller("ann", Permission.CLIENT)
    assert sessions.caller(session, AccessList([User("ann", token_sha256="0" * 64)])) is None
    assert sessions.caller(session, AccessList([])) is None
    assert sessions.caller(session, None) is None


def test_a_session_without_a_token_is_worth_nothing_where_tokens_are_asked_for() -> None:
    sessions = Sessions()
    assert sessions.caller(sessions.begin(OPERATOR), AccessList([ANN])) is None


def test_daemons_on_one_host_have_cookies_of_their_own() -> None:
    cookie = set_cookie("http://127.0.0.1:8000", "abc")
    assert cookie == "shisha_rt_8000=abc; Path=/; HttpOnly; SameSite=Strict"
    assert set_cookie("https://host", "abc").endswith("; Secure")
    headers = {b"host": b"127.0.0.1:8000", b"cookie": b"shisha_rt_8001=no; shisha_rt_8000=yes; x=y"}
    assert session_of(headers) == "yes"
    assert session_of(headers | {b"host": b"127.0.0.1:9000"}) is None
    assert session_of({b"host": b"127.0.0.1:8000", b"cookie": b"\xff;=;;shisha_rt_8001"}) is None
    others = b'theme={"dark": true}; [x]="\xff; shisha_rt_8000=yes; a b=c'  # of another program on this host
    assert session_of({b"host": b"127.0.0.1:8000", b"cookie": others}) == "yes"
