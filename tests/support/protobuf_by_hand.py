"""The few rules of protobuf's wire format that tests need to speak the channel without the daemon's own code."""


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """One field: an integer as varint, bytes with their length."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def message(**fields):
    """message(f1=..., f2=[..., ...]): the fields in the order given; a list repeats its field."""
    out = b""
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            out += field(int(name[1:]), one)
    return out


def fields(encoded):
    """The fields as {number: last value}: enough to tell the daemon's answers apart."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = encoded[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(encoded):
        key = number()
        if key & 7 == 0:
            found[key >> 3] = number()
        elif key & 7 == 2:
            size = number()
            found[key >> 3] = encoded[at:at + size]
            at += size
        elif key & 7 == 1:
            at += 8
        else:
            raise ValueError(f"wire type {key & 7}")
    return found
