#!/usr/bin/env python3
"""No network code: neither in the sources nor in what is built of them. Usage: check_network.py SOURCE_ROOT [BINARY...]

Sources (C and C++ of daemon, client, proto and tools): no network header, no network address family, no name lookup, and
every socket(), socketpair() and bind address is a Unix one. Binaries: no undefined symbol that looks up names or builds
network addresses, and no library that speaks to networks, but for what tools/replay links (libav, which is why that program
is not the daemon). --self-test plants each fault once and fails unless it is found.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDERS = ("daemon", "client", "proto", "tools")
HEADERS = re.compile(r'#\s*include\s*[<"](netdb\.h|netinet/|arpa/|net/|resolv\.h|linux/(if|netlink|rtnetlink|in6?)\b|curl/|'
                     r'openssl/(ssl|bio)\.h|boost/asio|asio|uv\.h|event2/|microhttpd|libsoup|grpc|httplib|zmq|nanomsg)')
WORDS = re.compile(r'\b(AF_INET6?|PF_INET6?|AF_NETLINK|AF_PACKET|AF_VSOCK|AF_BLUETOOTH|sockaddr_in6?|in6?_addr|getaddrinfo|'
                   r'gethostby\w+|getnameinfo|inet_(pton|ntop|addr|aton)|res_n?query|SSL_(connect|new)|SYS_socket|__NR_socket|curl_easy_\w+)\b')
SOCKET = re.compile(r'\b(socket|socketpair)\s*\(\s*([^,()]+),')
SYMBOLS = re.compile(r'\b(getaddrinfo|gethostby\w+|getnameinfo|inet_(pton|ntop|addr|aton|ntoa)|res_n?query|res_n?search|'
                     r'getservby\w+|if_nametoindex|SSL_\w+|BIO_s_connect|curl_\w+|in6addr_\w+)\b')
LIBRARIES = re.compile(r'lib(curl|ssl|soup|uv|event|nghttp\d?|resolv|ldns|gnutls|microhttpd|ssh\d?|zmq|avahi|grpc)\b')


def without_comments(text):
    keep_lines = lambda match: "\n" * match.group(0).count("\n")
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"(?=[^\n]*)', lambda m: m.group(0) if m.group(0)[0] == '"' else
                  keep_lines(m), text, flags=re.S)


def faults_of_source(path, text):
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        for found in (HEADERS.search(line), WORDS.search(line)):
            if found:
                yield f"{path}:{number}: {found.group(0)}"
        for call in SOCKET.finditer(line):
            family = call.group(2).strip()
            if family not in ("AF_UNIX", "AF_LOCAL", "PF_UNIX") and not family.startswith("int"):
                yield f"{path}:{number}: {call.group(1)}() of family {family}; only AF_UNIX is one"


def faults_of_binary(path, may_link=re.compile("$^")):
    symbols = subprocess.run(["nm", "--undefined-only", "-A", "-C", path], capture_output=True, text=True)
    dynamic = subprocess.run(["nm", "--undefined-only", "-D", "-A", path], capture_output=True, text=True)
    if dynamic.returncode != 0 and symbols.returncode != 0:
        yield f"{path}: cannot be read: {dynamic.stderr.strip()}"
    for line in (symbols.stdout + dynamic.stdout).splitlines():
        name = line.split()[-1].split("@")[0]
        if SYMBOLS.fullmatch(name):
            yield f"{path}: uses {name}"
    needed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
    for library in re.findall(r"NEEDED.*\[(.*?)\]", needed):
        if LIBRARIES.search(library) and not may_link.search(library):
            yield f"{path}: links {library}"


def faults(root, binaries):
    sources = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.suffix in
               (".c", ".h", ".cpp", ".hpp", ".inl")]
    if len(sources) < 100:
        yield f"only {len(sources)} sources in {root}: nothing to trust this check with"
    for path in sources:
        yield from faults_of_source(path.relative_to(root), path.read_text(errors="replace"))
    for binary in binaries:
        yield from faults_of_binary(binary)


def self_test():
    plants = ['#include <netdb.h>', '#include <netinet/in.h>', 'int s = socket(AF_INET, SOCK_STREAM, 0);',
              'int s = ::socket(family, SOCK_STREAM, 0);', 'getaddrinfo(host, port, 0, &found);', 'sockaddr_in6 address;',
              'int s = socket(2, 1, 0);', 'syscall(SYS_socket, 2, 1, 0);', 'inet_pton(family, text, out);', 'x(); /* a */ socketpair(PF_INET, 1, 0, fds);']
    for plant in plants:
        assert list(faults_of_source("planted.cpp", plant)), f"not found: {plant}"
    for clean in ('int s = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);', '// as getaddrinfo() would', 'websocket(x, y);',
                  '/* AF_INET\n */ int x;', '::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);'):
        assert not list(faults_of_source("clean.cpp", clean)), (clean, list(faults_of_source("clean.cpp", clean)))
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "planted"
        text = "#include <netdb.h>\nint main(void) { struct addrinfo* a; return getaddrinfo(\"a\", \"b\", 0, &a); }\n"
        subprocess.run(["cc", "-x", "c", "-", "-o", str(program)], input=text, text=True, check=True)
        assert any("getaddrinfo" in fault for fault in faults_of_binary(str(program))), "a planted lookup is not found"
        subprocess.run(["strip", str(program)], check=True)
        assert any("getaddrinfo" in fault for fault in faults_of_binary(str(program))), "nor without symbols"
        text = "int main(void) { return 0; }\n"
        subprocess.run(["cc", "-x", "c", "-", "-o", str(program)], input=text, text=True, check=True)
        assert not list(faults_of_binary(str(program))), list(faults_of_binary(str(program)))
        assert list(faults_of_binary(str(program) + "-missing"))


def main():
    self_test()
    found = list(faults(pathlib.Path(sys.argv[1]), sys.argv[2:]))
    print("\n".join(found) if found else f"no network code: ok ({len(sys.argv) - 2} programs and libraries)")
    return 1 if found else 0


sys.exit(main())
