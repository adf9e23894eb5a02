"""Files that registries and serializers know by themselves: schemas import them without a reference.

Confluent's registry knows `google/type` and a decimal of its own; ksqlDB and Connect use them in the schemas that they
register.  The protobuf package has none of them.
"""

from __future__ import annotations

from typing import Final

_DATE = "int32 year = 1; int32 month = 2; int32 day = 3;"
_DECIMAL = "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
_PERIODS = ("CALENDAR_PERIOD_UNSPECIFIED", "DAY", "WEEK", "FORTNIGHT", "MONTH", "QUARTER", "HALF", "YEAR")
_DAYS = ("DAY_OF_WEEK_UNSPECIFIED", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_MONTHS = (
    *("MONTH_UNSPECIFIED", "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST"),
    *("SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
)


def _enum(name: str, values: tuple[str, ...]) -> str:
    return f"enum {name} {{ {' '.join(f'{value} = {number};' for number, value in enumerate(values))} }}"


def _google_type(body: str, imported: str = "") -> str:
    first = f'import "google/protobuf/{imported}.proto";' if imported else ""
    return f'syntax = "proto3"; package google.type; {first} {body}'


_GOOGLE_TYPES = {
    "calendar_period": _google_type(_enum("CalendarPeriod", _PERIODS)),
    "color": _google_type(
        "message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }",
        "wrappers",
    ),
    "date": _google_type(f"message Date {{ {_DATE} }}"),
    "datetime": _google_type(
        f"message DateTime {{ {_DATE} int32 hours = 4; int32 minutes = 5; int32 seconds = 6; int32 nanos = 7;"
        " oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }"
        " message TimeZone { string id = 1; string version = 2; }",
        "duration",
    ),
    "dayofweek": _google_type(_enum("DayOfWeek", _DAYS)),
    "decimal": _google_type("message Decimal { string value = 1; }"),
    "expr": _google_type(
        "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }"
    ),
    "fraction": _google_type("message Fraction { int64 numerator = 1; int64 denominator = 2; }"),
    "interval": _google_type(
        "message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }",
        "timestamp",
    ),
    "latlng": _google_type("message LatLng { double latitude = 1; double longitude = 2; }"),
    "localized_text": _google_type("message LocalizedText { string text = 1; string language_code = 2; }"),
    "money": _google_type("message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"),
    "month": _google_type(_enum("Month", _MONTHS)),
    "phone_number": _google_type(
        "message PhoneNumber { oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3;"
        " message ShortCode { string region_code = 1; string number = 2; } }"
    ),
    "postal_address": _google_type(
        "message PostalAddress { int32 revision = 1; string region_code = 2; string language_code = 3;"
        " string postal_code = 4; string sorting_code = 5; string administrative_area = 6; string locality = 7;"
        " string sublocality = 8; repeated string address_lines = 9; repeated string recipients = 10;"
        " string organization = 11; }"
    ),
    "quaternion": _google_type("message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"),
    "timeofday": _google_type(
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
}
KNOWN_TEXTS: Final = {f"google/type/{name}.proto": text for name, text in _GOOGLE_TYPES.items()} | {
    f"confluent/{folder}/decimal.proto": f'syntax = "proto3"; package confluent.type; {_DECIMAL}'
    for folder in ("type", "types")  # Go's client calls it so
}
