"""Line icons drawn for this project on a 16-unit grid (stroke 1.5, see css). Constants only: they are written unescaped."""

from __future__ import annotations

ICONS: dict[str, str] = {
    "check": '<path d="M3 8.5 6.5 12 13 4.5"/>',
    "cross": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "warning": '<path d="M8 2.5 14.5 13.5h-13z"/><path d="M8 6.5v3.2M8 11.6v.1"/>',
    "info": '<circle cx="8" cy="8" r="6"/><path d="M8 7.2v4M8 4.8v.1"/>',
    "copy": (
        '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/>'
        '<path d="M10.5 3.5v-.3a1 1 0 0 0-1-1H3.4a1 1 0 0 0-1 1v6.1a1 1 0 0 0 1 1h.3"/>'
    ),
    "link": (
        '<path d="M6.8 9.2a2.6 2.6 0 0 0 3.7 0l2.3-2.3a2.6 2.6 0 0 0-3.7-3.7l-.9.9'
        'M9.2 6.8a2.6 2.6 0 0 0-3.7 0L3.2 9.1a2.6 2.6 0 0 0 3.7 3.7l.9-.9"/>'
    ),
    "chevron": '<path d="M6 3.5 10.5 8 6 12.5"/>',
    "down": '<path d="M3.5 6 8 10.5 12.5 6"/>',
    "sun": (
        '<circle cx="8" cy="8" r="2.8"/>'
        '<path d="M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9'
        'M4.3 11.7l-.9.9"/>'
    ),
    "moon": '<path d="M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z"/>',
    "contrast": (
        '<circle cx="8" cy="8" r="5.8"/><path d="M8 2.2v11.6" /><path class="solid" d="M8 2.2a5.8 5.8 0 0 1 0 11.6z"/>'
    ),
    "keys": (
        '<rect x="1.5" y="4" width="13" height="8.5" rx="1.5"/>'
        '<path d="M4 6.8h.1M6.7 6.8h.1M9.3 6.8h.1M12 6.8h.1M5 9.8h6"/>'
    ),
    "user": '<circle cx="8" cy="5.6" r="2.6"/><path d="M2.8 13.6c.7-2.4 2.7-3.6 5.2-3.6s4.5 1.2 5.2 3.6"/>',
    "search": '<circle cx="7" cy="7" r="4.2"/><path d="m10.2 10.2 3.6 3.6"/>',
    "plus": '<path d="M8 3v10M3 8h10"/>',
    "play": '<path d="M4.5 2.8 13 8l-8.5 5.2z"/>',
    "pause": '<path d="M5.2 3v10M10.8 3v10"/>',
    "stop": '<rect x="3.5" y="3.5" width="9" height="9" rx="1"/>',
    "import": '<path d="M2.5 9.5v4h11v-4M8 2.5v7M5 6.7 8 9.7l3-3"/>',
    "download": '<path d="M8 2.5v7.3M4.8 6.8 8 10l3.2-3.2M2.8 13h10.4"/>',
    "columns": '<rect x="2" y="3" width="12" height="10" rx="1.2"/><path d="M6 3v10M10 3v10"/>',
    "flag": '<path d="M3.5 14V2.5M3.5 3h8.6l-1.8 3 1.8 3H3.5"/>',
    "fork": (
        '<circle cx="4.5" cy="3.5" r="1.6"/>'
        '<circle cx="11.5" cy="3.5" r="1.6"/>'
        '<circle cx="8" cy="12.5" r="1.6"/>'
        '<path d="M4.5 5.1c0 3 3.5 2.4 3.5 5.8M11.5 5.1c0 3-3.5 2.4-3.5 5.8"/>'
    ),
    "clone": '<rect x="2.5" y="5.5" width="8" height="8" rx="1.2"/><path d="M5.5 2.5h7a1 1 0 0 1 1 1v7"/>',
    "clock": '<circle cx="8" cy="8" r="5.8"/><path d="M8 4.6V8l2.4 1.6"/>',
    "runs": '<path d="M2 12.5 5.5 8l3 2.5L14 3.5"/><path d="M10.5 3.5H14V7"/>',
    "eye": (
        '<path d="M1.8 8C3.3 5.2 5.4 3.8 8 3.8S12.7 5.2 14.2 8c-1.5 2.8-3.6 4.2-6.2 4.2S3.3 10.8 1.8 8z"/>'
        '<circle cx="8" cy="8" r="1.8"/>'
    ),
    "note": '<path d="M3.5 2.5h9v7.5L9 13.5H3.5z"/><path d="M12.5 10H9v3.5M5.8 5.6h4.4M5.8 8h2.6"/>',
    "trash": '<path d="M3 4.5h10M6.5 4.5V2.8h3v1.7M4.3 4.5l.6 8.7h6.2l.6-8.7"/>',
    "archive": '<path d="M2.5 3h11v3h-11zM3.5 6v7h9V6M6.5 8.5h3"/>',
    "more": '<path d="M3.2 8h.1M8 8h.1M12.8 8h.1"/>',
}
